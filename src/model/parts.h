/* SPDX-License-Identifier: MIT */
/* The files of a model. Most models are one file; large ones are split in parts NAME-00001-of-00003.gguf, of which
 * the first holds all keys and each holds some of the tensors. */
#ifndef WNW_PARTS_H
#define WNW_PARTS_H

#include "model/model.h"

struct wnw__model_part {
    char *path;
    struct gguf_context *gguf;
    struct ggml_context *meta; /* its tensors; their data lie in the mapping */
    void *map;
    size_t map_size;
    ggml_backend_buffer_t buffer; /* the mapping as ggml sees it */
};

/* Maps the file and reads what it says of itself; so for all other parts where it is the first part of a split
 * model. Sets m's parts and gguf. Files that are no models are refused with what they are. Errors: E_FORMAT, E_IO,
 * E_NOMEM, E_UNSUPPORTED. The caller calls wnw__parts_close also after a failure. */
int wnw__parts_open(struct wnw_model *m, const char *path);
/* Gives every tensor its place in the mappings, after checking that the place exists, and counts m->weight_bytes. */
int wnw__parts_place(struct wnw_model *m);
void wnw__parts_close(struct wnw_model *m);

/* The tensor of this name as it lies in its file; NULL if no part has it. */
struct ggml_tensor *wnw__parts_tensor(const struct wnw_model *m, const char *name);
/* The number of tensors in all parts. */
int64_t wnw__parts_n_tensor(const struct wnw_model *m);

#endif
