/* SPDX-License-Identifier: MIT */
#include "observe/projnorm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void dequantise_row(const struct wnw__proj_weight *w, int32_t k, float *row)
{
    const int64_t n_in = (int64_t)w->n_head * w->d;
    const size_t bytes = ggml_row_size(w->type, n_in);
    const uint8_t *src = (const uint8_t *)w->data + (size_t)k * bytes;
    if (w->type == GGML_TYPE_F32)
        memcpy(row, src, bytes);
    else
        ggml_get_type_traits(w->type)->to_float(src, row, n_in);
    for (int64_t c = 0; w->factor && c < n_in; c++)
        row[c] *= *w->factor;
}

double wnw__proj_norm_ref(const struct wnw__proj_weight *w, int32_t ih, wnw_proj_norm kind, const float *v)
{
    const int32_t group = w->n_head / w->n_head_kv;
    int32_t *column = malloc((size_t)w->n_out * sizeof *column);
    float *row = malloc((size_t)w->n_head * (size_t)w->d * sizeof *row);
    double sum = -1.0;
    if (!column || !row)
        goto done;
    const int32_t n_column = wnw__proj_columns(kind, w->n_out, column);
    sum = 0.0;
    for (int32_t i = 0; i < n_column; i++) {
        dequantise_row(w, column[i], row);
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            double x = 0.0;
            for (int32_t c = 0; c < w->d; c++)
                x += (double)v[c] * (double)row[(size_t)h * (size_t)w->d + (size_t)c];
            sum += kind == WNW_PROJ_L2 ? x * x : fabs(x);
        }
    }
    sum /= group;
    sum = kind == WNW_PROJ_L2 ? sqrt(sum) : sum * w->n_out / n_column;
done:
    free(column);
    free(row);
    return sum;
}
