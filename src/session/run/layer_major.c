/* SPDX-License-Identifier: MIT */
/*
 * Layer-major prefill: all tokens of a piece go through layer 0, ubatch by ubatch; then layer 0 is compressed
 * and its memory given back; layer 1 follows, and so on. In the end the last token's hidden state goes to the
 * output head. Only the current layer holds every entry, so the peak memory is the compressed cache, one full
 * layer and the hidden states [n][n_embd]. Every layer sees the same inputs as in ubatch-major order, so keep-sets
 * and logits are the same to the bit. Pieces so long that the hidden states are stored in f16 are an exception.
 */
#include "session/run/layer_major.h"
#include "base/system.h"
#include "plan/compress.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/session.h"
#include "session/timeline/feed.h"

#include <stdlib.h>

/* Hidden states of more tokens are stored in f16. In float32, those of 16384 tokens of SmolLM2-135M would take four fifths
 * of the bytes of its compressed cache, where an eighth is kept. */
enum { FLOAT32_TOKENS = 4096 };

struct reader {
    struct wnw__plan_source src; /* the first member, because callbacks get its address */
    wnw_session *s;
    const int32_t *tokens;
    int32_t n, n_past; /* tokens of the piece, and tokens read before it */
    int32_t n_done;    /* layers that have read the piece */
    /* The entries of layer `foreseen`, which has yet to read the piece, as in struct wnw__plan_layer. */
    int32_t foreseen, *n_entry, *pos;
    int64_t *off;
    struct wnw__hidden_rows *x; /* input of the current layer, then its output */
    struct wnw__span span;
};

/* Lists the entries that layer il will hold when it has read the piece. */
static void list_future_entries(struct reader *r, int32_t il)
{
    int64_t at = 0;
    for (int32_t ih = 0; ih < r->s->cache.n_head_kv; ih++) {
        const int32_t *held = wnw_cache_positions(r->s, il, ih), n = wnw_cache_n(r->s, il, ih);
        r->off[ih] = at;
        r->n_entry[ih] = n + r->n;
        for (int32_t i = 0; i < n; i++)
            r->pos[at++] = held[i];
        for (int32_t i = 0; i < r->n; i++)
            r->pos[at++] = r->n_past + i;
    }
    r->foreseen = il;
}

/* Entries that a layer holds, or will hold when it has read the piece. */
static struct wnw__plan_layer layer(const struct wnw__plan_source *src, int32_t il)
{
    struct reader *r = (struct reader *)(uintptr_t)src;
    const struct wnw__entries held = wnw__source_entries(&r->s->cache);
    struct wnw__plan_layer l = held.layer(held.of, il);
    if (il < r->n_done)
        return l;
    if (il != r->foreseen)
        list_future_entries(r, il);
    l.n_entry = r->n_entry;
    l.pos = r->pos;
    l.off = r->off;
    return l;
}

/* Makes room for the entries of any layer. */
static int hold_entries(struct reader *r)
{
    const size_t n_head = (size_t)r->s->cache.n_head_kv;
    int64_t most = 0;
    for (int32_t il = 0; il < r->s->cache.n_layer; il++) {
        int64_t n = 0;
        for (int32_t ih = 0; ih < r->s->cache.n_head_kv; ih++)
            n += wnw_cache_n(r->s, il, ih) + r->n;
        most = n > most ? n : most;
    }
    r->pos = calloc((size_t)most + 1, sizeof *r->pos);
    r->off = calloc(n_head, sizeof *r->off);
    r->n_entry = calloc(n_head, sizeof *r->n_entry);
    r->foreseen = -1;
    return r->pos && r->off && r->n_entry
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "no memory for the positions of %lld entries", (long long)most);
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
    return wnw__cache_drop_unseen(&s->cache, il, s->n_past);
}

static int read_layer(struct reader *r, int32_t il)
{
    wnw_session *s = r->s;
    const int32_t n_layer = s->m->hp.n_layer;
    s->n_past = r->n_past;
    const struct wnw__record_pass pass = {
        .cache = &s->cache, .from = il, .to = il + 1, .n_past = s->n_past, .n = r->n};
    if (wnw__layer_takes_part(&s->shape.model, il))
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
    return wnw__cache_release_tail(&s->cache, il);
}

static int compress_layer(struct reader *r, int32_t il, struct wnw__draft *draft, wnw_report *report)
{
    struct wnw__cache *c = &r->s->cache;
    struct wnw__kept_layer kept;
    if (!wnw__layer_takes_part(&r->s->shape.model, il))
        return WNW_OK;
    const uint64_t bytes = wnw__cache_bytes(c);
    if (bytes > report->kv_bytes_before)
        report->kv_bytes_before = bytes;
    WNW_TRY(wnw__draft_layer(draft, il, &kept));
    const double start = wnw__now_ms();
    WNW_TRY(wnw__rewrite_layer(c, il, &kept, -1));
    report->compact_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static int read_layers(struct reader *r, struct wnw__draft *draft, wnw_report *report)
{
    wnw_session *s = r->s;
    WNW_TRY(wnw__token_log_reserve(&s->token_log, r->n_past, r->n));
    wnw__token_log_add(&s->token_log, r->n_past, r->tokens, r->n);
    for (int32_t il = 0; il < s->m->hp.n_layer; il++) {
        const double start = wnw__now_ms();
        WNW_TRY(read_layer(r, il));
        report->read_ms += wnw__now_ms() - start;
        WNW_TRY(compress_layer(r, il, draft, report));
        wnw__recorders_tell(&s->recorders, il, il + 1, WNW_EVENT_DROPPED);
    }
    s->n_judged = s->n_past;
    s->n_run = 0;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__feed_logits(s, &r->span, 0, NULL, NULL));
    report->read_ms += wnw__now_ms() - start;
    return WNW_OK;
}

int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n,
                          const struct wnw__compression *compression, wnw_report *report)
{
    struct reader r = {.s = s, .tokens = tokens, .n = n, .n_past = s->n_past};
    struct wnw__draft *draft = NULL;
    wnw_report of_draft = {0};
    int rc = wnw__session_source(&r.src, s);
    if (rc != WNW_OK)
        return rc;
    r.src.layer = layer;
    r.src.n_past = s->n_past + n;
    r.src.entry_bytes.n_f16 = wnw__cache_f16_after(&s->cache, n);
    r.src.ratio_base = compression->ratio_base;
    rc = hold_entries(&r);
    if (rc == WNW_OK)
        rc = wnw__draft_new(&draft, compression->policy, &compression->size, &r.src, &of_draft);
    if (rc != WNW_OK)
        goto done; /* nothing has been read yet */
    rc = wnw__hidden_rows_new(&r.x, n, s->m->hp.n_embd, s->params.n_ubatch, n > FLOAT32_TOKENS);
    if (rc == WNW_OK)
        rc = read_layers(&r, draft, report);
    if (rc == WNW_OK) {
        wnw__draft_times(draft, report);
        wnw__draft_protection(draft, report);
    } else if (r.x)
        (void)wnw_session_reset(s); /* some layers have read the piece and others have not */
    if (*of_draft.warning)
        wnw__warn(report->warning, "%s", of_draft.warning);
done:
    wnw__hidden_rows_free(r.x);
    free(r.pos);
    free(r.off);
    free(r.n_entry);
    wnw__draft_free(draft);
    wnw__source_close(&r.src);
    return rc;
}
