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

struct llama_model; /* only tokens.c looks inside */

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

/* tokens.c */
/* Sends the messages of ggml and libllama to our log sink, unless the program has a callback of its own
 * there.
 */
void wnw__quiet_dependencies(void);
/* After m->gguf and m->hp: checks the vocabulary and has libllama read it. */
int wnw__vocab_open(struct wnw_model *m, const char *path);
void wnw__vocab_free(struct wnw_model *m);
int32_t wnw__vocab_size(const struct wnw_model *m);

/* The tensor of the file that w is, or was repacked from: never repacked, in the mapping. */
const struct ggml_tensor *wnw__model_original(const struct wnw_model *m, const struct ggml_tensor *w);

/* repack.c: moves the weights that ggml can hold in a faster CPU layout there and redirects m's pointers. */
int wnw__repack(struct wnw_model *m);

#endif
