/* SPDX-License-Identifier: MIT */
/*
 * Layer-major prefill: all tokens of a piece go through layer 0, ubatch by ubatch; then layer 0 is compressed
 * and its memory given back; layer 1 follows, and so on. In the end the last token's hidden state goes to the
 * output head. Only the layer at hand holds every entry, so the peak memory is the compressed cache, one full
 * layer and the hidden states [n][n_embd]. Every layer sees the same inputs as in ubatch-major order, so
 * keep-sets and logits are the same to the bit, except for pieces so long that the hidden states are stored in f16.
 */
#include "session/layer_major.h"
#include "base/time.h"
#include "session/feed.h"
#include "session/hidden_rows.h"
#include "session/observer.h"
#include "session/rewrite.h"
#include "session/session.h"

#include <stdlib.h>

/* Hidden states of more tokens are stored in f16. In float32 those of 16384 tokens would be four fifths of what a
 * cache of SmolLM2-135M takes of which an eighth is kept. */
enum { FLOAT32_TOKENS = 4096 };

struct reader {
    struct wnw__plan_source src; /* the first member, because callbacks get its address */
    wnw_session *s;
    const int32_t *tokens;
    int32_t n, n_past;          /* tokens of the piece, and tokens read before it */
    int32_t n_done;             /* layers that have read the piece */
    int32_t *pos;               /* [most entries of a head] of a head that has yet to read the piece */
    struct wnw__hidden_rows *x; /* input of the layer at hand, then its output */
    struct wnw__span span;
};

/* Entries that a layer holds, or will hold when it has read the piece. */
static int32_t n_entry(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct reader *r = (const struct reader *)src;
    return wnw_cache_n(r->s, il, ih) + (il < r->n_done ? 0 : r->n);
}

/* Positions of those entries. */
static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct reader *r = (const struct reader *)src;
    const int32_t *held = wnw_cache_positions(r->s, il, ih), n = wnw_cache_n(r->s, il, ih);
    if (il < r->n_done)
        return held;
    for (int32_t i = 0; i < n; i++)
        r->pos[i] = held[i];
    for (int32_t i = 0; i < r->n; i++)
        r->pos[n + i] = r->n_past + i;
    return r->pos;
}

static int hold_positions(struct reader *r)
{
    int32_t most = 0;
    for (int32_t il = 0; il < r->s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < r->s->cache.n_head_kv; ih++)
            most = n_entry(&r->src, il, ih) > most ? n_entry(&r->src, il, ih) : most;
    r->pos = calloc((size_t)most + 1, sizeof *r->pos);
    return r->pos ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the positions of %d entries", (int)most);
}

static int read_ubatch(struct reader *r, int32_t il, int32_t at, int32_t n)
{
    wnw_session *s = r->s;
    r->span = (struct wnw__span){.from = il,
                                 .to = il + 1,
                                 .tokens = r->tokens + at,
                                 .x = wnw__hidden_rows_take(r->x, at, n, il > 0),
                                 .n = n,
                                 .n_out = 1};
    WNW_TRY(wnw__feed_span(s, &r->span));
    if (il + 1 < s->m->hp.n_layer)
        wnw__hidden_rows_put(r->x);
    s->n_past += n;
    return wnw__cache_trim_swa(&s->cache, il, s->n_past);
}

static int read_layer(struct reader *r, int32_t il)
{
    wnw_session *s = r->s;
    const int32_t n_layer = s->m->hp.n_layer;
    s->n_past = r->n_past;
    const struct wnw__record_pass pass = {
        .cache = &s->cache, .from = il, .to = il + 1, .n_past = s->n_past, .n = r->n};
    if (s->cache.layers[il].n_swa == 0)
        WNW_TRY(wnw__cache_expect_layer(&s->cache, il, r->n, s->params.n_ubatch));
    WNW_TRY(wnw__recorders_begin(&s->recorders, &pass));
    for (int32_t at = 0; at < r->n;) {
        const int32_t n_now = r->n - at < s->params.n_ubatch ? r->n - at : s->params.n_ubatch;
        WNW_TRY(read_ubatch(r, il, at, n_now));
        at += n_now;
        const int32_t done = (int32_t)(((int64_t)il * r->n + at) / n_layer);
        if (s->params.progress && !s->params.progress(done, r->n, s->params.progress_user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled in layer %d of %d", (int)il, (int)n_layer);
    }
    r->n_done = il + 1;
    return wnw__cache_tighten_layer(&s->cache, il);
}

static int compress_layer(struct reader *r, int32_t il, struct wnw__plan_job *job, wnw_report *report)
{
    struct wnw__cache *c = &r->s->cache;
    struct wnw__kept_layer kept;
    if (c->layers[il].n_swa > 0)
        return WNW_OK;
    const uint64_t bytes = wnw__cache_bytes(c);
    if (bytes > report->kv_bytes_before)
        report->kv_bytes_before = bytes;
    WNW_TRY(wnw__plan_job_layer(job, il, &kept));
    const double start = wnw__now_ms();
    bool all = true;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        all = all && kept.n_keep[ih] == c->layers[il].len[ih];
    WNW_TRY(wnw__rewrite_layer(c, il, kept.keep, kept.n_keep, all, -1, kept.contents, kept.averages));
    c->layers[il].n_final = kept.n_final;
    report->compact_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static int read_layers(struct reader *r, struct wnw__plan_job *job, wnw_report *report)
{
    wnw_session *s = r->s;
    WNW_TRY(wnw__ids_reserve(&s->ids, r->n_past, r->n));
    wnw__ids_add(&s->ids, r->n_past, r->tokens, r->n);
    for (int32_t il = 0; il < s->m->hp.n_layer; il++) {
        const double start = wnw__now_ms();
        WNW_TRY(read_layer(r, il));
        report->read_ms += wnw__now_ms() - start;
        WNW_TRY(compress_layer(r, il, job, report));
        wnw__recorders_moved(&s->recorders, il, il + 1, WNW_MOVED_DROPPED);
    }
    s->n_fixed = s->n_past;
    s->n_run = 0;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__feed_logits(s, &r->span, 0, NULL, NULL));
    report->read_ms += wnw__now_ms() - start;
    return WNW_OK;
}

int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n, const struct wnw__goal *goal,
                          wnw_report *report)
{
    struct reader r = {.s = s, .tokens = tokens, .n = n, .n_past = s->n_past};
    struct wnw__observer *ob = NULL;
    struct wnw__plan_job *job = NULL;
    wnw_report of_job = {0};
    int rc = wnw__observer_new(&ob, s);
    if (rc != WNW_OK)
        return rc;
    r.src = *wnw__observer_source(ob);
    r.src.n_entry = n_entry;
    r.src.positions = positions;
    r.src.n_past = s->n_past + n;
    r.src.entry_bytes.n_exact = wnw__cache_exact_after(&s->cache, n);
    r.src.ratio_base = goal->ratio_base;
    rc = hold_positions(&r);
    if (rc == WNW_OK)
        rc = wnw__plan_job_new(&job, goal->policy, &goal->size, &r.src, &of_job);
    if (rc != WNW_OK)
        goto done; /* nothing has been read yet */
    rc = wnw__hidden_rows_new(&r.x, n, s->m->hp.n_embd, s->params.n_ubatch, n > FLOAT32_TOKENS);
    if (rc == WNW_OK)
        rc = read_layers(&r, job, report);
    if (rc == WNW_OK)
        wnw__plan_job_times(job, report);
    else if (r.x)
        (void)wnw_session_reset(s); /* some layers have read the piece and others have not */
    if (*of_job.warning)
        wnw__warn(report->warning, "%s", of_job.warning);
done:
    wnw__hidden_rows_free(r.x);
    free(r.pos);
    wnw__plan_job_free(job);
    wnw__observer_free(ob);
    return rc;
}
