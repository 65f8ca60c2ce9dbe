/* SPDX-License-Identifier: MIT */
#include "attend/attend_impl.h"

void wnw__attend_write(const struct wnw__attend_job *job, int32_t ih, int32_t first, int32_t last,
                       const float *k, const float *v)
{
    const struct wnw__attend_dims *dims = &job->op->shared->dims;
    const int32_t len = job->layer->len[ih];
    for (int32_t t = first; t < last; t++) {
        const int64_t src =
            ((int64_t)(job->slice->first_row + t) * dims->model.n_head_kv + ih) * dims->model.d;
        const struct wnw__kv_rows row =
            wnw__cache_rows(job->slice->cache, job->layer, ih, len + t, len + t + 1);
        wnw__cache_store(job->slice->cache, WNW_KEYS, row.type, k + src, row.k);
        wnw__cache_store(job->slice->cache, WNW_VALUES, row.type, v + src, row.v);
    }
}
