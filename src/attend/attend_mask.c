/* SPDX-License-Identifier: MIT */
/* Heads that are switched off for an ablation: their output is 0, and what they attend to does not matter. */
#include "attend/attend_impl.h"

#include <string.h>

void wnw__attend_mask_run(const struct wnw__attend_op *op, float *out, int ith, int nth)
{
    const struct wnw__attend_dims *dims = &op->shared->dims;
    for (int32_t i = 0; i < op->batch->n_slice; i++) {
        const struct wnw__attend_slice *slice = &op->batch->slice[i];
        if (!slice->masked)
            continue;
        const uint8_t *masked = slice->masked + (size_t)op->il * (size_t)dims->model.n_head;
        for (int32_t t = ith; t < slice->n_row; t += nth) {
            float *row = out + (int64_t)(slice->first_row + t) * dims->model.n_head * dims->model.d;
            for (int32_t h = 0; h < dims->model.n_head; h++)
                if (masked[h])
                    memset(row + (int64_t)h * dims->model.d, 0, (size_t)dims->model.d * sizeof *row);
        }
    }
}

static void mask_node(struct ggml_tensor *dst, const struct ggml_tensor *out, int ith, int nth,
                      void *userdata)
{
    (void)out; /* its memory is that of dst */
    wnw__attend_mask_run(userdata, dst->data, ith, nth);
}

struct ggml_tensor *wnw__attend_mask(struct ggml_context *ctx, struct wnw__attend_op *op,
                                     struct ggml_tensor *out)
{
    return ggml_map_custom1_inplace(ctx, out, mask_node, GGML_N_TASKS_MAX, op);
}
