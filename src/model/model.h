/* SPDX-License-Identifier: MIT */
/* An opened GGUF file: hyper-parameters, weights in place (memory-mapped, some repacked), tokenizer.
 * Read-only. */
#ifndef WNW_MODEL_H
#define WNW_MODEL_H

#include "base/err.h"
#include "model/arch/arch.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <gguf.h>

struct llama_model; /* only src/text looks inside */

struct wnw_model {
    char *name;
    const struct wnw__arch *arch;
    struct wnw__hparams hp;
    struct wnw__weights w;
    struct wnw__layer_weights *layers; /* [hp.n_layer] */

    struct gguf_context *gguf;
    struct ggml_context *meta;     /* every tensor of the file, in the mapping */
    struct ggml_context *repacked; /* second copies in CPU_REPACK layout, or NULL */
    void *repacked_arena;          /* memory of that context */
    ggml_backend_buffer_t mapped_buffer;
    ggml_backend_buffer_t repacked_buffer;
    void *map;
    size_t map_size;
    uint64_t weight_bytes, repacked_bytes;

    struct llama_model *vocab; /* libllama, vocabulary only */
};

/* Reads everything of the file but the vocabulary, which is libllama's (text/open.c), into an empty *m. After a
 * failure *m is to be cleared as well. */
int wnw__model_read(struct wnw_model *m, const char *path);
/* Releases what wnw__model_read and wnw__repack made; the vocabulary is freed before. */
void wnw__model_clear(struct wnw_model *m);

/* The tensor of the file that w is, or was repacked from: never repacked, in the mapping. */
struct ggml_tensor *wnw__model_original(const struct wnw_model *m, const struct ggml_tensor *w);

#endif
