/* SPDX-License-Identifier: MIT */
#include "forward/times.h"

#include "base/system.h"

/* ---- Marks ---- */

static void mark_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct wnw__mark *mark = userdata;
    (void)dst;
    (void)nth;
    if (ith != 0)
        return;
    const double now = wnw__now_ms();
    mark->times->part[mark->kind].ms += now - mark->times->last_ms;
    mark->times->last_ms = now;
}

struct ggml_tensor *wnw__mark_node(struct ggml_context *ctx, struct wnw__times *t, enum wnw__work_kind kind,
                                   struct ggml_tensor *after)
{
    return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, &after, 1, mark_node, 1, &t->mark[kind]);
}

void wnw__times_start(struct wnw__times *t)
{
    *t = (struct wnw__times){.on = true};
    for (int i = 0; i < WNW_N_WORK; i++)
        t->mark[i] = (struct wnw__mark){.times = t, .kind = (enum wnw__work_kind)i};
}

void wnw__times_begin(struct wnw__times *t)
{
    if (t->on)
        t->last_ms = wnw__now_ms();
}

void wnw__times_end(struct wnw__times *t)
{
    if (t->on)
        t->part[WNW_WORK_OTHER].ms += wnw__now_ms() - t->last_ms;
}

/* ---- Work ---- */

void wnw__times_product(wnw_work *work, const struct ggml_tensor *w, int64_t n_row)
{
    work->ops += 2.0 * (double)ggml_nelements(w) * (double)n_row;
    work->bytes += (double)ggml_nbytes(w);
}

static void count_layer(struct wnw__times *t, const struct wnw__slice *s, int32_t i, int32_t il,
                        const struct wnw__times_shape *shape)
{
    const int32_t skipped = wnw__attend_skipped(&shape->ops[il], i);
    const struct wnw__kv_layer *layer = &s->cache->layers[il];
    wnw_work *work = &t->part[WNW_WORK_ATTENTION];
    for (int32_t ih = 0; ih < s->cache->n_head_kv; ih++) {
        const int32_t group = wnw__shape_group(&shape->model);
        const double pairs = wnw__attend_pairs(layer, ih, s->n_row) - wnw__attend_pairs(layer, ih, skipped);
        /* A query is multiplied with a key, and a value with a weight. */
        work->ops += 4.0 * shape->model.d * group * pairs;
        /* Keys and values are read once for all rows; those of the rows are written before. */
        work->bytes += 2.0 * (double)s->cache->row_bytes * (layer->len[ih] + 2.0 * s->n_row);
    }
}

void wnw__times_count(struct wnw__times *t, const struct wnw__batch *b, const struct wnw__record_pass *passes,
                      const struct wnw__times_shape *shape, const wnw_work *made)
{
    for (int i = 0; i < WNW_N_WORK; i++) {
        t->part[i].ops += made[i].ops;
        t->part[i].bytes += made[i].bytes;
    }
    for (int32_t i = 0; i < b->n_slice; i++)
        for (int32_t il = b->from; il < b->to; il++) {
            count_layer(t, &b->slice[i], i, il, shape);
            t->part[WNW_WORK_OBSERVATION].ops += wnw__recorders_ops(b->slice[i].recorders, il, &passes[i]);
        }
    t->n_pass++;
    t->n_token += b->n_row;
}
