/* SPDX-License-Identifier: MIT */
#include "hiding.h"

#include "asserts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

/* The entries of one KV head, and whether each of the first n is hidden. */
struct head {
    bool *hidden; /* NULL: all are seen */
    int32_t n;
};

static const wnw_session *subject; /* NULL: no session has hidden entries */
static struct head *heads;         /* [n_layer][n_head_kv] */

void test_hide_end(void)
{
    const struct wnw__cache *c = subject ? &subject->cache : NULL;
    for (int32_t i = 0; c && i < c->n_layer * c->n_head_kv; i++)
        free(heads[i].hidden);
    free(heads);
    heads = NULL;
    subject = NULL;
}

static struct head hide(const wnw_session *s, const wnw_plan *plan, int32_t il, int32_t ih)
{
    const int32_t *kept, *pos = wnw_cache_positions(s, il, ih);
    const int32_t n_kept = wnw_plan_head(plan, il, ih, &kept), n = wnw_cache_n(s, il, ih);
    struct head h = {.hidden = calloc((size_t)n + 1, sizeof *h.hidden), .n = n};
    assert_non_null(h.hidden);
    for (int32_t i = 0, k = 0; i < n; i++) {
        while (k < n_kept && kept[k] < pos[i])
            k++;
        h.hidden[i] = k == n_kept || kept[k] != pos[i];
    }
    return h;
}

void test_hide_dropped(const wnw_session *s, const wnw_plan *plan)
{
    const struct wnw__cache *c = &s->cache;
    test_hide_end();
    assert_int_equal(s->params.attn, WNW_ATTN_GGML);
    heads = calloc((size_t)(c->n_layer * c->n_head_kv), sizeof *heads);
    assert_non_null(heads);
    subject = s;
    for (int32_t i = 0; i < c->n_layer * c->n_head_kv; i++)
        if (c->layers[i / c->n_head_kv].n_swa == 0)
            heads[i] = hide(s, plan, i / c->n_head_kv, i % c->n_head_kv);
}

/* ---- Inside of ggml's graphs ---- */

/* The layer of the subject whose keys k is a view of, -1 if it is none. */
static int32_t layer_of(const struct ggml_tensor *k)
{
    for (int32_t il = 0; subject && il < subject->cache.n_layer; il++)
        if (k->view_src && k->view_src->data == subject->cache.layers[il].k)
            return il;
    return -1;
}

/* dst = mask [n_kv, n_row], closed for the entries that are hidden. */
static void close_hidden(struct ggml_tensor *dst, const struct ggml_tensor *mask, int ith, int nth,
                         void *user)
{
    const struct head *h = user;
    const ggml_fp16_t shut = ggml_fp32_to_fp16(-INFINITY);
    for (int64_t row = ith; row < mask->ne[1]; row += nth) {
        ggml_fp16_t *out = (ggml_fp16_t *)((char *)dst->data + (size_t)row * dst->nb[1]);
        memcpy(out, (const char *)mask->data + (size_t)row * mask->nb[1], (size_t)mask->ne[0] * sizeof *out);
        for (int32_t i = 0; i < h->n && i < mask->ne[0]; i++)
            out[i] = h->hidden[i] ? shut : out[i];
    }
}

/* Heads first .. first + n - 1 of x [d, rows, heads]. */
static struct ggml_tensor *heads_of(struct ggml_context *ctx, struct ggml_tensor *x, int64_t first, int64_t n)
{
    return ggml_view_3d(ctx, x, x->ne[0], x->ne[1], n, x->nb[1], x->nb[2], (size_t)first * x->nb[2]);
}

struct ggml_tensor *__real_ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q,
                                               struct ggml_tensor *k, struct ggml_tensor *v,
                                               struct ggml_tensor *mask, float scale, float max_bias,
                                               float softcap);
struct ggml_tensor *__wrap_ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q,
                                               struct ggml_tensor *k, struct ggml_tensor *v,
                                               struct ggml_tensor *mask, float scale, float max_bias,
                                               float softcap);

/* One operation for each KV head, since each has a mask of its own. */
struct ggml_tensor *__wrap_ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q,
                                               struct ggml_tensor *k, struct ggml_tensor *v,
                                               struct ggml_tensor *mask, float scale, float max_bias,
                                               float softcap)
{
    const int32_t il = layer_of(k);
    if (il < 0)
        return __real_ggml_flash_attn_ext(ctx, q, k, v, mask, scale, max_bias, softcap);
    const int32_t n_head_kv = subject->cache.n_head_kv;
    const int64_t group = q->ne[2] / k->ne[2];
    struct ggml_tensor *out = NULL;
    assert_int_equal(k->ne[2], n_head_kv); /* nothing is ever dropped, so one operation has all heads */
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        struct head *h = &heads[il * n_head_kv + ih];
        struct ggml_tensor *own = h->hidden ? ggml_map_custom1(ctx, mask, close_hidden, 1, h) : mask;
        struct ggml_tensor *one =
            __real_ggml_flash_attn_ext(ctx, heads_of(ctx, q, ih * group, group), heads_of(ctx, k, ih, 1),
                                       heads_of(ctx, v, ih, 1), own, scale, max_bias, softcap);
        ggml_prec_set_acc(one, GGML_PREC_F32);
        out = out ? ggml_concat(ctx, out, one, 1) : one;
    }
    return out;
}
