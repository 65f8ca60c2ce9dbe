/* SPDX-License-Identifier: MIT */
/* Rows of tensors of any dimensions. */
#ifndef WNW_BASE_TENSOR_ROW_H
#define WNW_BASE_TENSOR_ROW_H

#include <ggml.h>

/* Row r of ggml_nrows(t), whose numbers follow each other. */
static inline char *wnw__tensor_row(const struct ggml_tensor *t, int64_t r)
{
    const int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
    return (char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}

#endif
