/* SPDX-License-Identifier: MIT */
/*
 * Refuses files that are too large for a profile before they are parsed, because in memory a JSON value takes
 * up to eighty times its bytes in the file. What a profile may hold follows from the model's shape; the
 * bounds are several times what the largest kind needs, and leave room for settings and data of any sort.
 */
#include "profile/profile_impl.h"

enum {
    FREE_VALUES = 1 << 18, /* settings, data and keys that no code reads */
    MAX_PROBES = 4096,     /* scores per head in published files */
    MAX_CELLS = 1 << 14,   /* bins of entropy x bins of perplexity in a layer of CompilerKV's tables */
    BYTES_PER_VALUE = 64   /* digits, sign, exponent, line break and indentation of one number */
};

void wnw__profile_limit(struct wnw__profile_limit *out, const struct wnw__profile_shape *shape)
{
    const int64_t heads = (int64_t)shape->model.n_layer * shape->model.n_head, d = shape->model.d;
    out->n_values =
        FREE_VALUES + heads * (MAX_PROBES + d * (d + 1)) + (int64_t)shape->model.n_layer * MAX_CELLS;
    out->n_lists = FREE_VALUES / 4 + heads * (d + 4);
    out->n_bytes = out->n_values * BYTES_PER_VALUE;
}

void wnw__profile_count(struct wnw__profile_count *c, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char ch = text[i];
        if (c->in_string) {
            c->in_string = c->escaped || ch != '"';
            c->escaped = !c->escaped && ch == '\\';
            continue;
        }
        c->in_string = ch == '"';
        /* One value comes before every comma and colon, and one more is in every list that is not empty. */
        c->n_values += ch == ',' || ch == ':' || ch == '[' || ch == '{';
        c->n_lists += ch == '[' || ch == '{';
    }
}
