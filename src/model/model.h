/* SPDX-License-Identifier: MIT */
/* An opened GGUF model: hyper-parameters, weights in place (memory-mapped, some repacked), tokenizer. It is
 * read-only once opened. */
#ifndef WNW_MODEL_H
#define WNW_MODEL_H

#include "base/err.h"
#include "base/shape.h"
#include "model/arch/arch.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <gguf.h>

struct llama_model; /* only src/text looks inside these two */
struct wnw__tokenizer;
struct wnw__executor; /* forward/executor.h */
struct wnw__fingerprint;

struct wnw_model {
    char *name;
    const struct wnw__arch *arch;
    struct wnw__arch foreign;             /* what `arch` points to where arch/ does not have the family */
    const struct wnw__executor *executor; /* runs the model's batches; NULL: our own graphs do */
    struct wnw__hparams hp;
    struct wnw__weights w;
    struct wnw__score_form *forms;     /* [hp.n_layer], or NULL: as in struct wnw__shape */
    int32_t *n_reader;                 /* the same */
    struct wnw__layer_weights *layers; /* [hp.n_layer]; with an executor only wk, wv and wo, or NULL */

    struct wnw__model_file *files;  /* [n_file] the files, in their order (files.h) */
    struct wnw__fingerprint *print; /* fingerprint.h */
    int32_t n_file;
    const struct gguf_context *gguf; /* of the first file, which holds all keys */
    struct ggml_context *repacked;   /* second copies in CPU_REPACK layout, or NULL */
    void *repacked_arena;            /* memory of that context */
    ggml_backend_buffer_t repacked_buffer;
    uint64_t weight_bytes, repacked_bytes;

    struct llama_model *vocab;        /* libllama: the vocabulary, with an executor all of the model */
    struct wnw__tokenizer *tokenizer; /* NULL where the file has none */
};

/* Opens the file and, of a split model, all other files in an empty *m, and finds the model's name and family: m->arch
 * is NULL where arch/ does not have it. digests: as in wnw_model_params. The caller clears *m also after a failure. */
int wnw__model_map(struct wnw_model *m, const char *path, const char *digests);
/* Reads what a family of arch/ computes with, except the vocabulary, which libllama reads (llama/open.c). */
int wnw__model_read(struct wnw_model *m);
/* Releases what these and wnw__repack made. The vocabulary must have been freed before. */
void wnw__model_clear(struct wnw_model *m);

/* The sizes of the model, which must outlive the result. */
static inline struct wnw__shape wnw__model_shape(const struct wnw_model *m)
{
    const struct wnw__hparams *hp = &m->hp;
    return (struct wnw__shape){.n_layer = hp->n_layer,
                               .n_head = hp->n_head,
                               .n_head_kv = hp->n_head_kv,
                               .d = hp->n_embd_head,
                               .left_alone = hp->n_swa > 0 ? hp->swa : NULL,
                               .forms = m->forms,
                               .n_reader = m->n_reader};
}

/* The tensor in the mapping that w is or was repacked from. */
struct ggml_tensor *wnw__model_original(const struct wnw_model *m, const struct ggml_tensor *w);

#endif
