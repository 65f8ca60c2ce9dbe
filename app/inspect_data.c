/* SPDX-License-Identifier: MIT */
#include "app/inspect_data.h"

#include "app/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- Texts ---- */

/* Tokens over which a character can be spread. */
enum { MOST_PARTS = 8 };

/* The text, in which bytes that are no character are replaced. NULL if memory runs out. *whole: there were none. */
static json_t *text_json(const struct app_text *t, bool *whole)
{
    struct app_text copy = {0};
    const bool good = app_text_add_utf8(&copy, t->s ? t->s : "", t->len);
    *whole = good && copy.len == t->len && (copy.len == 0 || memcmp(copy.s, t->s, copy.len) == 0);
    const char *s = copy.s ? copy.s : "";
    json_t *o = good ? json_stringn(s, copy.len) : NULL;
    free(copy.s);
    return o;
}

/* Makes the text of a token, and of those after it that it takes to make whole characters: *parts in all. */
static int next_text(json_t **o, int32_t *parts, int32_t i, int32_t n, app_inspect_piece *piece, void *user)
{
    struct app_text t = {0};
    json_t *first = NULL, *made = NULL;
    bool whole = false;
    int status = WNW_OK;
    for (*parts = 0; status == WNW_OK && !whole && *parts < MOST_PARTS && i + *parts < n; ++*parts) {
        status = piece(&t, i + *parts, user);
        json_decref(made);
        made = status == WNW_OK ? text_json(&t, &whole) : NULL;
        status = status == WNW_OK && !made ? WNW_E_NOMEM : status;
        first = *parts == 0 ? json_incref(made) : first;
    }
    if (status == WNW_OK && !whole)
        *parts = 1; /* no character begins here */
    json_t *text = whole ? made : first;
    *o = status == WNW_OK ? json_incref(text) : NULL;
    json_decref(first);
    json_decref(made);
    free(t.s);
    return status;
}

int app_inspect_texts(json_t **texts, int32_t n, app_inspect_piece *piece, void *user)
{
    int status = WNW_OK;
    *texts = json_array();
    for (int32_t i = 0, parts; status == WNW_OK && i < n; i += parts) {
        json_t *text;
        status = next_text(&text, &parts, i, n, piece, user);
        if (status != WNW_OK)
            return status;
        bool good = app_json_append(texts, text);
        for (int32_t k = 1; good && k < parts; k++)
            good = app_json_append(texts, json_string(""));
        status = good ? WNW_OK : WNW_E_NOMEM;
    }
    return status;
}

/* ---- What was kept ---- */

json_t *app_inspect_digits(const unsigned char *kept, int32_t n)
{
    static const char digits[] = "0123456789abcdef";
    const size_t len = ((size_t)n + 3) / 4;
    unsigned char *bits = calloc(len + 1, 1);
    if (!bits)
        return NULL;
    for (int32_t i = 0; i < n; i++)
        bits[i / 4] = (unsigned char)(bits[i / 4] | (unsigned)kept[i] << (i % 4));
    for (size_t i = 0; i < len; i++)
        bits[i] = (unsigned char)digits[bits[i]];
    json_t *out = json_stringn((const char *)bits, len);
    free(bits);
    return out;
}

json_t *app_inspect_plan(const struct app_inspect_plan *plan)
{
    return json_pack("{s:o, s:o, s:o, s:b, s:o}", "name", app_json_text(plan->name), "model",
                     app_json_text(plan->model), "policy", plan->policy, "moved", (int)plan->moved, "layers",
                     plan->layers);
}

json_t *app_inspect_data(const struct app_inspect_data *data)
{
    json_t *document = data->end > 0 ? json_pack("[i, i]", (int)data->first, (int)data->end) : json_null();
    return json_pack("{s:s, s:i, s:O?, s:O?, s:o, s:O, s:O?}", "winnow", wnw_version(), "n", (int)data->n,
                     "texts", data->texts, "ids", data->ids, "document", document, "plans", data->plans,
                     "answer", data->answer);
}
