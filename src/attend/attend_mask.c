/* SPDX-License-Identifier: MIT */
/* Heads that are switched off for an ablation: their output is 0, and what they attend to does not matter, or their query is,
 * and they attend to all entries alike. */
#include "attend/attend_impl.h"

#include <string.h>

void wnw__attend_mask_run(const struct wnw__attend_op *op, uint8_t how, float *rows, int ith, int nth)
{
    const struct wnw__attend_dims *dims = &op->shared->dims;
    for (int32_t i = 0; i < op->batch->n_slice; i++) {
        const struct wnw__attend_slice *slice = &op->batch->slice[i];
        if (!slice->masked)
            continue;
        const uint8_t *masked = slice->masked + (size_t)op->il * (size_t)dims->model.n_head;
        for (int32_t t = ith; t < slice->n_row; t += nth) {
            float *row = rows + (int64_t)(slice->first_row + t) * dims->model.n_head * dims->model.d;
            for (int32_t h = 0; h < dims->model.n_head; h++)
                if (masked[h] == how)
                    memset(row + (int64_t)h * dims->model.d, 0, (size_t)dims->model.d * sizeof *row);
        }
    }
}

static void mask_outputs(struct ggml_tensor *dst, const struct ggml_tensor *out, int ith, int nth,
                         void *userdata)
{
    (void)out; /* its memory is that of dst */
    wnw__attend_mask_run(userdata, WNW_MASKED_OUTPUT, dst->data, ith, nth);
}

static void mask_queries(struct ggml_tensor *dst, const struct ggml_tensor *q, int ith, int nth,
                         void *userdata)
{
    (void)q;
    wnw__attend_mask_run(userdata, WNW_MASKED_QUERY, dst->data, ith, nth);
}

struct ggml_tensor *wnw__attend_mask(struct ggml_context *ctx, struct wnw__attend_op *op,
                                     struct ggml_tensor *out)
{
    return ggml_map_custom1_inplace(ctx, out, mask_outputs, GGML_N_TASKS_MAX, op);
}

struct ggml_tensor *wnw__attend_mask_queries(struct ggml_context *ctx, struct wnw__attend_op *op,
                                             struct ggml_tensor *q)
{
    return ggml_map_custom1_inplace(ctx, ggml_is_contiguous(q) ? q : ggml_cont(ctx, q), mask_queries,
                                    GGML_N_TASKS_MAX, op);
}
