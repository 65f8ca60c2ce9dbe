/* SPDX-License-Identifier: MIT */
/*
 * The model fingerprint: FNV-1a (64 bits) over names, shapes and types of all tensors in the file's order (of all files; a model has the same one split and whole),
 * and over the bytes of the key and value weights of the first and the last layer. It reads a few megabytes,
 * not the whole file; two trainings of one architecture still have different fingerprints. Everything is
 * hashed as it lies in the file, so that neither the machine nor repacking changes the result.
 */
#include "model/files.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Adds the low n bytes of x to the hash, least significant first. */
static uint64_t add_number(uint64_t h, uint64_t x, int n)
{
    for (int i = 0; i < n; i++, x >>= 8) {
        const uint8_t byte = (uint8_t)(x & 0xff);
        h = wnw__hash(h, &byte, 1);
    }
    return h;
}

static uint64_t add_header(uint64_t h, const struct ggml_tensor *t)
{
    h = wnw__hash(h, t->name, strlen(t->name) + 1);
    for (int i = 0; i < GGML_MAX_DIMS; i++)
        h = add_number(h, (uint64_t)t->ne[i], 8);
    return add_number(h, (uint64_t)t->type, 4);
}

/* Adds the bytes of w as they lie in the file. w may be the repacked copy, which has the name of the
 * original. */
static uint64_t add_data(uint64_t h, const struct wnw_model *m, const struct ggml_tensor *w)
{
    const struct ggml_tensor *t = wnw__model_original(m, w);
    return wnw__hash(h, t->data, ggml_nbytes(t));
}

void wnw_model_fingerprint(const wnw_model *m, char out[17])
{
    uint64_t h = WNW_HASH_START;
    if (!out)
        return;
    out[0] = '\0';
    if (!m)
        return;
    for (int32_t i_file = 0; i_file < m->n_file; i_file++) {
        const struct wnw__model_file *file = &m->files[i_file];
        for (int64_t i = 0; i < gguf_get_n_tensors(file->gguf); i++)
            h = add_header(h, ggml_get_tensor(file->meta, gguf_get_tensor_name(file->gguf, i)));
    }
    const struct wnw__layer_weights *ends[2] = {&m->layers[0], &m->layers[m->hp.n_layer - 1]};
    for (int i = 0; i < 2; i++) {
        if (ends[i]->wk && ends[i]->wv) { /* some families have them in one tensor */
            h = add_data(h, m, ends[i]->wk);
            h = add_data(h, m, ends[i]->wv);
        }
    }
    snprintf(out, 17, "%016" PRIx64, h);
}
