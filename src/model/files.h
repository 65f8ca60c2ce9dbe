/* SPDX-License-Identifier: MIT */
/* The files of a model. Most models are one file. Large ones are split in files NAME-00001-of-00003.gguf. The first
 * holds all keys, and each holds some of the tensors. */
#ifndef WNW_FILES_H
#define WNW_FILES_H

#include "model/digests.h"
#include "model/model.h"

struct wnw__model_file {
    char *path;
    struct gguf_context *gguf;
    struct ggml_context *meta; /* its tensors; their data lie in the mapping */
    void *map;
    size_t map_size;
    int fd;                       /* of the mapping; -1 before there is one */
    struct wnw__file_state state; /* when it was mapped */
    ggml_backend_buffer_t buffer; /* the mapping as ggml sees it */
};

/* Maps the file and reads what it says of itself; so for all other files where it is the first of a split
 * model. Sets m's files and gguf. Files that are no models are refused with what they are. Errors: E_FORMAT, E_IO,
 * E_NOMEM, E_UNSUPPORTED. The caller calls wnw__files_close also after a failure. */
int wnw__files_open(struct wnw_model *m, const char *path);
/* Checks that all tensors lie in the mappings. E_FORMAT. */
int wnw__files_check(struct wnw_model *m);
/* Gives every tensor its place in the mappings, after checking that the place exists, and counts m->weight_bytes. */
int wnw__files_place(struct wnw_model *m);
/* Checks that nobody wrote to the files since they were mapped. E_MISMATCH. */
int wnw__files_check_kept(const struct wnw_model *m);
void wnw__files_close(struct wnw_model *m);

/* The tensor of this name as it lies in its file; NULL if no file has it. */
struct ggml_tensor *wnw__files_tensor(const struct wnw_model *m, const char *name);
/* The number of tensors in all files. */
int64_t wnw__files_n_tensor(const struct wnw_model *m);

#endif
