/* SPDX-License-Identifier: MIT */
#include "session/timeline/feed.h"

#include "session/session.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- A batch of one session ---- */

static struct wnw__slice slice_of(wnw_session *s, int32_t n, bool generated)
{
    return (struct wnw__slice){.cache = &s->cache,
                               .recurrent = s->recurrent,
                               .recorders = &s->recorders,
                               .n_row = n,
                               .n_past = s->n_past,
                               .generated = generated,
                               .masked = wnw__masks_for(&s->masks, generated)};
}

static struct wnw__record_pass pass_of(const wnw_session *s, int32_t n)
{
    return (struct wnw__record_pass){.cache = &s->cache, .to = s->cache.n_layer, .n_past = s->n_past, .n = n};
}

int wnw__feed_span(wnw_session *s, const struct wnw__span *span)
{
    const struct wnw__slice slice = slice_of(s, span->n, false);
    struct wnw__batch batch = {.slice = &slice,
                               .n_slice = 1,
                               .n_row = span->n,
                               .from = span->from,
                               .to = span->to,
                               .token = span->tokens,
                               .hidden = span->x,
                               .n_out = span->n_out};
    int32_t *rows = malloc((size_t)span->n_out * sizeof *rows);
    if (!rows)
        return wnw__fail(WNW_E_NOMEM, "no memory for the numbers of %d rows", (int)span->n_out);
    for (int32_t i = 0; i < span->n_out; i++)
        rows[i] = span->n - span->n_out + i;
    batch.out_row = rows;
    const int rc = wnw__engine_run(s->engine, &batch);
    free(rows);
    return rc;
}

/* ---- Logits ---- */

/* Whether none of x[n] is infinite or NaN: such a value times 0 is NaN, and a sum with a NaN stays NaN.
 * Sixteen sums let the compiler make the loop a few vector instructions. */
static bool all_finite(const float *x, int64_t n)
{
    float sum[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++)
            sum[k] += x[i + k] * 0.0f;
    for (; i < n; i++)
        sum[0] += x[i] * 0.0f;
    for (int k = 1; k < 16; k++)
        sum[0] += sum[k];
    return sum[0] == 0.0f;
}

/* Copies row i of the engine's logits to s->logits. Damaged weights show here at the latest, because every
 * layer's output ends in the logits. */
static int take_logits(wnw_session *s, int32_t i, int32_t position)
{
    memcpy(s->logits, wnw__engine_logits(s->engine, i), (size_t)s->m->hp.n_vocab * sizeof *s->logits);
    s->has_logits = all_finite(s->logits, s->m->hp.n_vocab);
    if (s->has_logits)
        return WNW_OK;
    return wnw__fail(WNW_E_NOT_FINITE,
                     "the model's output at position %d has values that are not numbers: weights in its file "
                     "are damaged, or its values are too large for a KV cache of type %s (f32 has the widest "
                     "range)",
                     (int)position, wnw_kv_type_name(s->params.kv_type));
}

int wnw__feed_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                     void *user)
{
    const int32_t before = s->n_past - span->n; /* n_past counts the span already */
    for (int32_t i = 0; on_logits && i < span->n; i++) {
        WNW_TRY(take_logits(s, i, before + i));
        if (!on_logits(first + i, s->logits, user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled at token %d", (int)(first + i));
    }
    return on_logits ? WNW_OK : take_logits(s, span->n_out - 1, s->n_past - 1);
}

/* Shows the logits to recorders while s->logits still holds those of the token before the span. */
static void show_logits(const wnw_session *s, const struct wnw__span *span)
{
    const struct wnw__record_pass pass = pass_of(s, span->n);
    const struct wnw__record_logits logits = {.pass = &pass,
                                              .tokens = span->tokens,
                                              .before = s->has_logits ? s->logits : NULL,
                                              .rows = wnw__engine_logits(s->engine, 0),
                                              .n_rows = span->n_out,
                                              .n_vocab = s->m->hp.n_vocab};
    wnw__recorders_logits(&s->recorders, &logits);
}

/* ---- Reading ---- */

void wnw__feed_trim(wnw_session *s)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        (void)wnw__cache_drop_unseen(&s->cache, il, s->n_past);
}

/* Counts tokens that the engine has read; a later failure does not take them back. */
static void count_tokens(wnw_session *s, const int32_t *tokens, int32_t n)
{
    wnw__token_log_add(&s->token_log, s->n_past, tokens, n);
    s->n_past += n;
    wnw__feed_trim(s);
}

/* Reads one ubatch through all layers. */
static int read_ubatch(wnw_session *s, const int32_t *tokens, int32_t n, int32_t first,
                       wnw_logits_fn on_logits, void *user)
{
    const struct wnw__record_pass pass = pass_of(s, n);
    const struct wnw__span span = {.to = s->cache.n_layer,
                                   .tokens = tokens,
                                   .n = n,
                                   .n_out = on_logits ? n : wnw__recorders_logit_rows(&s->recorders, &pass)};
    WNW_TRY(wnw__token_log_reserve(&s->token_log, s->n_past, n));
    WNW_TRY(wnw__feed_span(s, &span));
    show_logits(s, &span);
    count_tokens(s, tokens, n);
    s->n_run = 0;
    return wnw__feed_logits(s, &span, first, on_logits, user);
}

int wnw__feed_prompt(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                     wnw_logits_fn on_logits, void *user)
{
    const struct wnw__record_pass pass = pass_of(s, n);
    WNW_TRY(wnw__token_log_reserve(&s->token_log, s->n_past, n));
    /* Room is made once for all n tokens: growth per ubatch would copy the cache each time. Sliding layers
     * stay short and need none. */
    WNW_TRY(wnw__recorders_begin(&s->recorders, &pass));
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        if (s->cache.layers[il].n_swa == 0)
            WNW_TRY(wnw__cache_expect_layer(&s->cache, il, n, s->params.n_ubatch));
    }
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = n - at < s->params.n_ubatch ? n - at : s->params.n_ubatch;
        WNW_TRY(read_ubatch(s, tokens + at, n_now, at, on_logits, user));
        at += n_now;
        if (s->params.progress && !s->params.progress(done + at, total, s->params.progress_user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after %d of %d tokens", (int)(done + at),
                             (int)total);
    }
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        (void)wnw__cache_release_tail(&s->cache, il); /* without memory it stays as large as it was */
    return WNW_OK;
}

static int run_step(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n,
                    struct wnw__slice *slices)
{
    for (int32_t i = 0; i < n; i++) {
        slices[i] = slice_of(sessions[i], 1, true);
        WNW_TRY(wnw__token_log_reserve(&sessions[i]->token_log, sessions[i]->n_past, 1));
    }
    const struct wnw__batch batch = {.slice = slices,
                                     .n_slice = n,
                                     .n_row = n,
                                     .to = sessions[0]->cache.n_layer,
                                     .token = tokens,
                                     .n_out = n};
    return wnw__engine_run(e, &batch);
}

int wnw__feed_step(wnw_engine *e, wnw_session *const *sessions, const int32_t *tokens, int32_t n)
{
    struct wnw__slice one, *slices = n == 1 ? &one : malloc((size_t)n * sizeof *slices);
    if (!slices)
        return wnw__fail(WNW_E_NOMEM, "no memory for a batch of %d sessions", (int)n);
    const int rc = run_step(e, sessions, tokens, n, slices);
    if (slices != &one)
        free(slices);
    for (int32_t i = 0; rc == WNW_OK && i < n; i++) {
        count_tokens(sessions[i], &tokens[i], 1);
        sessions[i]->n_run++;
    }
    return rc;
}

int wnw__feed_step_logits(wnw_session *s, int32_t i)
{
    return take_logits(s, i, s->n_past - 1);
}
