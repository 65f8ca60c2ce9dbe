/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states as their authors publish them: files of tensors. I is the number of a layer.
 *
 *   KVzap (arXiv 2601.07891):        layers.I.weight [G][n_embd], layers.I.bias [G]; with hidden units layers.I.0.weight
 *                                    [m][n_embd], layers.I.0.bias, layers.I.2.weight [G][m], layers.I.2.bias. The authors'
 *                                    older code says module_list in place of layers.
 *   Fast KVzip (arXiv 2601.17668):   I.q_proj.weight [H e][n_embd], I.q_proj.bias, I.k_proj.weight [G e][n_embd];
 *                                    I.q_norm.weight [e], I.k_norm.weight [e], I.k_base [G][1][S][e], I.b [G][1][H / G]. Their
 *                                    files are pickled. docs/reference/profiles.md shows how to make tensors of them.
 *
 * They do not name their model: only shapes can be checked. Layers that a file leaves out have no gate.
 */
#include "profile/profile_impl.h"
#include "profile/tensors.h"
#include "winnow_calibrate.h"

#include <stdlib.h>

/* A table of a layer (wnw__input_tables) and the tensor that it is read from; NULL ends. */
struct row {
    const char *tensor;
    int8_t table;
};
static const struct row linear[] = {{"weight", 0}, {"bias", 1}, {NULL, 0}};
static const struct row mlp[] = {{"0.weight", 0}, {"0.bias", 1}, {"2.weight", 2}, {"2.bias", 3}, {NULL, 0}};
static const struct row attention[] = {{"q_proj.weight", 0},
                                       {"q_proj.bias", 1},
                                       {"k_proj.weight", 2},
                                       {"q_norm.weight", 3},
                                       {"k_norm.weight", 4},
                                       {"k_base", 5},
                                       {"b", 6},
                                       {NULL, 0}};

struct source {
    const struct wnw__tensors *t;
    const char *prefix; /* of every name, before the number of the layer */
    const struct row *rows;
};

enum { NAME = 64 };
static const char *name_of(const struct source *s, int32_t il, const char *tensor, char out[NAME])
{
    snprintf(out, NAME, "%s%d.%s", s->prefix, (int)il, tensor);
    return out;
}

static bool has_layer(const struct source *s, int32_t il)
{
    char name[NAME];
    return wnw__tensors_has(s->t, name_of(s, il, s->rows[0].tensor, name));
}

/* The first layer that the file has; -1 = none. */
static int32_t first_layer(const struct source *s, int32_t n_layer)
{
    for (int32_t il = 0; il < n_layer; il++)
        if (has_layer(s, il))
            return il;
    return -1;
}

static int read_layers(const struct source *s, struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    struct wnw__input_table table[WNW_INPUT_TABLES];
    char name[NAME];
    if (has_layer(s, shape->n_layer))
        return wnw__fail(WNW_E_MISMATCH, "'%.200s' has gates of a layer %d; the model has %d layers",
                         s->t->path, (int)shape->n_layer, (int)shape->n_layer);
    const int64_t n = wnw__input_numbers(g, shape);
    if (n > s->t->size / 2) /* before memory is taken for what cannot be there */
        return wnw__fail(WNW_E_FORMAT, "'%.200s' is too short for a layer's gates of %lld numbers",
                         s->t->path, (long long)n);
    WNW_TRY(wnw__input_gate_new(g, shape));
    wnw__input_tables(g, shape, table);
    float *to = g->number;
    for (int32_t il = 0; il < shape->n_layer; il++, to = g->number + il * n) {
        if (!has_layer(s, il))
            continue;
        for (const struct row *row = s->rows; row->tensor; row++) {
            const struct wnw__input_table *of = &table[row->table];
            const int64_t size = (int64_t)of->n_row * of->n_col;
            WNW_TRY(wnw__tensors_read(s->t, name_of(s, il, row->tensor, name), size, to));
            to += size;
        }
        g->there[il] = true;
    }
    return WNW_OK;
}

/* Sets *rows and *columns of a tensor; at most `most` of each. */
static int shape_of(const struct source *s, int32_t il, const char *tensor, int32_t *rows, int32_t *columns)
{
    enum { MOST = 1 << 17 };
    char name[NAME];
    int64_t shape[3];
    WNW_TRY(wnw__tensors_shape(s->t, name_of(s, il, tensor, name), shape));
    if (shape[1] < 1 || shape[1] > MOST || shape[2] < 1 || shape[2] > MOST)
        return wnw__fail(WNW_E_MISMATCH, "tensor %s of %lld x %lld numbers; 1 to %d of each are read", name,
                         (long long)shape[1], (long long)shape[2], MOST);
    *rows = (int32_t)shape[1];
    *columns = (int32_t)shape[2];
    return WNW_OK;
}

static int not_these(const struct wnw__tensors *t, const char *as, const char *first)
{
    return wnw__fail(WNW_E_FORMAT,
                     "'%.200s' has no gates of %s: there is no tensor %s of any of the model's layers",
                     t->path, as, first);
}

static int read_kvzap(const struct wnw__tensors *t, struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    static const char *const prefixes[] = {"layers.", "module_list."};
    for (int i = 0; i < 4; i++) {
        const struct source s = {.t = t, .prefix = prefixes[i / 2], .rows = i % 2 ? mlp : linear};
        const int32_t il = first_layer(&s, shape->n_layer);
        int32_t rows = 0;
        if (il < 0)
            continue;
        g->form = i % 2 ? WNW_INPUT_MLP : WNW_INPUT_LINEAR;
        WNW_TRY(shape_of(&s, il, s.rows[0].tensor, &rows, &g->n_embd));
        g->n_hidden = i % 2 ? rows : 0;
        return read_layers(&s, g, shape);
    }
    return not_these(t, "KVzap", "layers.I.weight or layers.I.0.weight");
}

static int read_fastkvzip(const struct wnw__tensors *t, struct wnw__input_gate *g,
                          const struct wnw__shape *shape)
{
    const struct source s = {.t = t, .prefix = "", .rows = attention};
    const int32_t il = first_layer(&s, shape->n_layer);
    int32_t rows = 0;
    if (il < 0)
        return not_these(t, "Fast KVzip", "I.q_proj.weight");
    g->form = WNW_INPUT_ATTENTION;
    WNW_TRY(shape_of(&s, il, "q_proj.weight", &rows, &g->n_embd));
    WNW_TRY(shape_of(&s, il, "k_base", &g->n_sink, &g->n_dim));
    return read_layers(&s, g, shape);
}

int wnw__profile_import_gates(const char *path, wnw_profile *p, bool kvzap)
{
    struct wnw__tensors t = {0};
    int rc = wnw__tensors_open(&t, path);
    if (rc == WNW_OK)
        rc = (kvzap ? read_kvzap : read_fastkvzip)(&t, &p->inputs, &p->model);
    wnw__tensors_close(&t);
    if (rc == WNW_OK)
        p->kinds = 1u << WNW_PROFILE_INPUTGATE;
    return rc;
}
