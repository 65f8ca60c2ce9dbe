/* SPDX-License-Identifier: MIT */
/* Files of tensors as other programs write them (safetensors): the length of a header in 8 bytes, the header, JSON that
 * names type, shape and place of each tensor, and the tensors. The least byte of a number comes first. */
#ifndef WNW_TENSORS_H
#define WNW_TENSORS_H

#include "base/err.h"

#include <jansson.h>

/* The file and its header; belongs to one thread. */
struct wnw__tensors {
    const char *path; /* borrowed */
    FILE *file;
    json_t *header;
    int64_t at, size; /* where the tensors begin, and their bytes */
};

/* *t starts as {0}; the caller closes it, after a failure too. E_IO; E_FORMAT: no file of tensors. E_NOMEM */
int wnw__tensors_open(struct wnw__tensors *t, const char *path);
void wnw__tensors_close(struct wnw__tensors *t);
bool wnw__tensors_has(const struct wnw__tensors *t, const char *name);
/* The last two dimensions of a tensor, and the product of those before them, which is 1 where there are none; the same for
 * missing ones. E_FORMAT: there is no such tensor, or its entry is damaged. */
int wnw__tensors_shape(const struct wnw__tensors *t, const char *name, int64_t out[3]);
/* Reads a tensor of exactly n numbers, F32, F16 or BF16, into out[n]. E_MISMATCH: it has another number of them. E_FORMAT:
 * as above, another type, a place outside the file, or a number that is not finite. */
int wnw__tensors_read(const struct wnw__tensors *t, const char *name, int64_t n, float *out);

#endif
