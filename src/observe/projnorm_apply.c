/* SPDX-License-Identifier: MIT */
/* The output projection of whole rows, in float32. */
#include "observe/projnorm.h"

#include "kernel/kernel.h"

#include <stdlib.h>

/* The rows of the weight that a lane dequantises at a time. */
enum { BLOCK = 16 };

struct job {
    const struct wnw__proj_weight *w;
    const float *x;
    int32_t n, n_lane;
    float *y, *rows; /* rows: [n_lane][BLOCK][n_head x d] */
};

/* Lane i multiplies blocks i, i + n_lane, ... of the weight's rows. */
static void work(int32_t i, void *user)
{
    const struct job *j = user;
    const struct wnw__proj_weight *w = j->w;
    const int32_t size = w->n_head * w->d;
    const ggml_to_float_t to_float = ggml_get_type_traits(w->type)->to_float;
    float *rows = j->rows + (size_t)i * BLOCK * (size_t)size;
    for (int32_t at = i * BLOCK; at < w->n_out; at += j->n_lane * BLOCK) {
        const int32_t n = w->n_out - at < BLOCK ? w->n_out - at : BLOCK;
        const uint8_t *src = (const uint8_t *)w->data + (size_t)at * ggml_row_size(w->type, size);
        const float *block = rows;
        if (w->type == GGML_TYPE_F32)
            block = (const float *)(const void *)src;
        else
            to_float(src, rows, (int64_t)n * size);
        wnw__mul_nt(j->x, j->n, block, n, size, w->factor ? *w->factor : 1.0f, j->y + at, w->n_out);
    }
}

int wnw__proj_apply(struct wnw__pool *pool, const struct wnw__proj_weight *w, const float *x, int32_t n,
                    float *y)
{
    struct job j = {.w = w, .x = x, .n = n, .n_lane = pool ? pool->n_threads : 1, .y = y};
    if (w->type != GGML_TYPE_F32 && !ggml_get_type_traits(w->type)->to_float)
        return wnw__fail(WNW_E_UNSUPPORTED, "output projections of type %s cannot be read",
                         ggml_type_name(w->type));
    j.rows = malloc((size_t)j.n_lane * BLOCK * (size_t)w->n_head * (size_t)w->d * sizeof *j.rows);
    if (!j.rows)
        return wnw__fail(WNW_E_NOMEM, "no memory for rows of an output projection");
    wnw__parallel(pool, j.n_lane, work, &j);
    free(j.rows);
    return WNW_OK;
}
