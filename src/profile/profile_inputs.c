/* SPDX-License-Identifier: MIT */
/* Reads profiles of kind inputgate: the numbers of every layer are one text of base64, float32 with the lowest byte first,
 * because as digits those of a larger model would be gigabytes. */
#include "base/json.h"
#include "base/strings.h"
#include "profile/profile_impl.h"

#include <math.h>

enum { MOST = 1 << 17 };
#define LARGEST 1e6f

static int read_sizes(const struct wnw__profile_file *f, const json_t *settings, struct wnw__input_gate *g)
{
    const struct {
        const char *key;
        int32_t *out;
        bool wanted;
    } rows[] = {{"n_embd", &g->n_embd, true},
                {"hidden", &g->n_hidden, g->form == WNW_INPUT_MLP},
                {"dim", &g->n_dim, g->form == WNW_INPUT_ATTENTION},
                {"sinks", &g->n_sink, g->form == WNW_INPUT_ATTENTION}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].wanted)
            continue;
        WNW_TRY(wnw__profile_int(f, settings, rows[i].key, 0, 1, i == 0 ? MOST : MOST >> 4, rows[i].out));
        if (*rows[i].out == 0)
            return wnw__profile_bad(f, "settings.%s is missing", rows[i].key);
    }
    return WNW_OK;
}

static int not_base64(const struct wnw__profile_file *f, int32_t il, int64_t n)
{
    return wnw__profile_bad(f, "layers[%d] is not the base64 of %lld numbers of 4 bytes", (int)il,
                            (long long)n);
}

static int read_layer(const struct wnw__profile_file *f, const json_t *v, int32_t il, float *to, int64_t n,
                      bool *there)
{
    if (!json_is_string(v))
        return wnw__profile_bad(f, "layers[%d] is no text", (int)il);
    *there = json_string_length(v) > 0;
    if (!*there)
        return WNW_OK;
    if (!wnw__json_read_f32_text(v, to, (size_t)n))
        return not_base64(f, il, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(to[i]) <= LARGEST))
            return wnw__profile_bad(f, "number %lld of layers[%d] is %g; it must be %g to %g", (long long)i,
                                    (int)il, (double)to[i], (double)-LARGEST, (double)LARGEST);
    return WNW_OK;
}

/* Checks before memory is taken that the file holds the numbers of a layer at least, all the others being left out. */
static int check_lengths(const struct wnw__profile_file *f, const json_t *layers, int64_t n)
{
    const json_t *v;
    size_t il, n_there = 0;
    json_array_foreach(layers, il, v)
    {
        const size_t length = json_string_length(v);
        if (json_is_string(v) && length > 0 && length != WNW_BASE64_LENGTH((size_t)n * sizeof(float)))
            return not_base64(f, (int32_t)il, n);
        n_there += length > 0;
    }
    return n_there > 0 ? WNW_OK : wnw__profile_bad(f, "results.layers has gates of no layer");
}

int wnw__profile_read_inputs(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    struct wnw__input_gate *g = &p->inputs;
    const json_t *layers = json_object_get(json_object_get(f->root, "results"), "layers");
    int32_t form;
    WNW_TRY(wnw__profile_choice(f, settings, "form", wnw__input_forms, &form));
    if (form < 0)
        return wnw__profile_bad(f, "settings.form is missing");
    g->form = (enum wnw__input_form)form;
    WNW_TRY(read_sizes(f, settings, g));
    WNW_TRY(wnw__profile_int(f, settings, "length", 0, 1, INT32_MAX, &g->n_piece));
    WNW_TRY(wnw__profile_int(f, settings, "reach", 0, 0, INT32_MAX, &g->n_reach));
    if (!json_is_array(layers) || json_array_size(layers) != (size_t)p->model.n_layer)
        return wnw__profile_bad(f, "results.layers is not an array of %d texts", (int)p->model.n_layer);
    const int64_t n = wnw__input_numbers(g, &p->model);
    WNW_TRY(check_lengths(f, layers, n));
    WNW_TRY(wnw__input_gate_new(g, &p->model));
    for (int32_t il = 0; il < p->model.n_layer; il++)
        WNW_TRY(read_layer(f, json_array_get(layers, (size_t)il), il, g->number + il * n, n, &g->there[il]));
    return WNW_OK;
}

/* ---- Writing ---- */

json_t *wnw__profile_input_layers(const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    const int64_t n = wnw__input_numbers(g, shape);
    json_t *a = json_array();
    for (int32_t il = 0; a && il < shape->n_layer; il++) {
        json_t *v = g->there[il] ? wnw__json_f32_text(g->number + il * n, (size_t)n) : json_string("");
        if (json_array_append_new(a, v) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

bool wnw__profile_input_settings(const struct wnw__input_gate *g, json_t *settings)
{
    bool good = json_object_set_new(settings, "form", json_string(wnw__input_forms[g->form])) == 0 &&
                json_object_set_new(settings, "n_embd", json_integer(g->n_embd)) == 0;
    if (g->form == WNW_INPUT_MLP)
        good = good && json_object_set_new(settings, "hidden", json_integer(g->n_hidden)) == 0;
    if (g->form == WNW_INPUT_ATTENTION)
        good = good && json_object_set_new(settings, "dim", json_integer(g->n_dim)) == 0 &&
               json_object_set_new(settings, "sinks", json_integer(g->n_sink)) == 0;
    return good;
}
