/* SPDX-License-Identifier: MIT */
/* Making, checking and reading a session; what its cache holds is in entries.c, decoding in run/batch.c. */
#include "session/session.h"

#include "base/err.h"
#include "observe/projnorm.h"
#include "session/timeline/feed.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static bool is_quantised(wnw_kv_type type)
{
    return type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0;
}

static int check_tail(const wnw_session_params *p, wnw_attn attn)
{
    if (p->kv_tail == 0)
        return WNW_OK;
    if (p->kv_tail < WNW_CACHE_TAIL_MIN || p->kv_tail > WNW_CACHE_TAIL_MAX)
        return wnw__fail(WNW_E_RANGE, "a KV tail of %d entries: use 0 (none), or %d to %d", (int)p->kv_tail,
                         WNW_CACHE_TAIL_MIN, WNW_CACHE_TAIL_MAX);
    if (!is_quantised(p->kv_type))
        return wnw__fail(
            WNW_E_ARG,
            "a KV tail keeps the newest entries of a quantised cache in f16; this one is %s: use "
            "q8_0 or q4_0, or no tail",
            wnw_kv_type_name(p->kv_type));
    if (attn == WNW_ATTN_GGML)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the ggml attention reads entries of one type; a KV tail needs the own attention");
    return WNW_OK;
}

/* Resolves the parameters; n_ubatch, n_threads and attn are those of the engine. */
static int resolve_params(const wnw_engine *e, const wnw_session_params *in, wnw_session_params *out)
{
    const wnw_engine_params *of_engine = wnw__engine_params(e);
    const int32_t n_ctx_train = wnw__engine_model(e)->hp.n_ctx_train;
    *out = wnw_session_default_params();
    WNW_TRY(WNW_SIZED_TAKE(wnw_session_params, out, in));
    if (out->n_ctx < 0 || out->n_ctx > n_ctx_train)
        return wnw__fail(WNW_E_RANGE, "a context of %d tokens: this model takes 1 to %d", (int)out->n_ctx,
                         (int)n_ctx_train);
    if ((int)out->kv_type < WNW_KV_F16 || out->kv_type > WNW_KV_Q4_0)
        return wnw__fail(WNW_E_ARG, "KV type number %d does not exist", (int)out->kv_type);
    WNW_TRY(check_tail(out, of_engine->attn));
    out->n_ctx = out->n_ctx ? out->n_ctx : n_ctx_train;
    out->n_ubatch = of_engine->n_ubatch;
    out->n_threads = of_engine->n_threads;
    out->attn = of_engine->attn;
    return WNW_OK;
}

static int init_cache(wnw_session *s)
{
    const struct wnw__hparams *hp = &s->m->hp;
    int32_t *n_swa = calloc((size_t)hp->n_layer, sizeof *n_swa);
    if (!n_swa)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    for (int32_t il = 0; il < hp->n_layer; il++)
        n_swa[il] = wnw__layer_takes_part(&s->shape.model, il) ? 0 : hp->n_swa;
    const int32_t growth = s->params.attn == WNW_ATTN_GGML ? WNW_CACHE_GROWTH_GGML : WNW_CACHE_GROWTH;
    int rc = wnw__cache_init(&s->cache, hp->n_layer, hp->n_head_kv, hp->n_embd_head, s->params.kv_type,
                             growth, n_swa);
    s->cache.chunked = hp->swa_chunked;
    if (rc == WNW_OK && s->params.kv_tail > 0)
        rc = wnw__cache_set_tail(&s->cache, s->params.kv_tail);
    if (rc == WNW_OK && is_quantised(s->params.kv_type) && !s->params.kv_unrotated)
        wnw__cache_rotate(&s->cache);
    free(n_swa);
    return rc;
}

static void set_shape(wnw_session *s)
{
    const struct wnw__hparams *hp = &s->m->hp;
    s->shape = (struct wnw__record_shape){.model = wnw__model_shape(s->m),
                                          .n_embd = hp->n_embd,
                                          .n_ctx = s->params.n_ctx,
                                          .n_ubatch = s->params.n_ubatch,
                                          .n_threads = s->params.n_threads,
                                          .pool = wnw__engine_pool(s->engine),
                                          .q_scale = hp->q_scale};
}

static int init_session(wnw_session *s, const wnw_session_params *params)
{
    const struct wnw__hparams *hp = &s->m->hp;
    WNW_TRY(resolve_params(s->engine, params, &s->params));
    s->logits = calloc((size_t)hp->n_vocab, sizeof *s->logits);
    if (!s->logits)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    set_shape(s);
    WNW_TRY(wnw__recurrent_new(&s->recurrent, s->engine));
    return init_cache(s);
}

int wnw_session_new_on(wnw_session **out, wnw_engine *e, const wnw_session_params *params)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(e);
    wnw_session *s = calloc(1, sizeof *s);
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    s->m = wnw__engine_model(e);
    s->engine = e;
    const int rc = init_session(s, params);
    if (rc != WNW_OK) {
        wnw_session_free(s);
        return rc;
    }
    *out = s;
    return WNW_OK;
}

int wnw_session_new(wnw_session **out, const wnw_model *m, const wnw_session_params *params)
{
    wnw_session_params wanted = wnw_session_default_params();
    wnw_engine *e;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_TRY(WNW_SIZED_TAKE(wnw_session_params, &wanted, params));
    const wnw_engine_params of_engine = {WNW_INIT(wnw_engine_params), .n_ubatch = wanted.n_ubatch,
                                         .n_threads = wanted.n_threads, .attn = wanted.attn};
    WNW_TRY(wnw_engine_new(&e, m, &of_engine));
    const int rc = wnw_session_new_on(out, e, &wanted);
    if (rc != WNW_OK) {
        wnw_engine_free(e);
        return rc;
    }
    (*out)->owns_engine = true;
    return WNW_OK;
}

void wnw_session_free(wnw_session *s)
{
    if (!s)
        return;
    wnw__recurrent_free(s->recurrent);
    if (s->owns_engine)
        wnw_engine_free(s->engine);
    wnw__recorders_free(&s->recorders);
    wnw__cache_free(&s->cache);
    wnw__proj_free(s->proj[0]);
    wnw__proj_free(s->proj[1]);
    wnw__token_log_free(&s->token_log);
    wnw__rules_free(&s->rules);
    wnw__masks_free(&s->masks);
    free(s->logits);
    free(s);
}

int wnw__session_forget(wnw_session *s)
{
    wnw__engine_release(s->engine);
    wnw__recorders_tell(&s->recorders, 0, s->cache.n_layer, WNW_EVENT_EMPTIED);
    wnw__rules_reset(&s->rules);
    s->n_past = s->n_renumbered = s->token_log.n_ambiguous = 0;
    s->n_judged = s->n_run = 0;
    s->pos_shift = 0;
    s->has_logits = false;
    wnw__cache_clear(&s->cache);
    wnw__recurrent_clear(s->recurrent);
    return WNW_OK;
}

int wnw_session_reset(wnw_session *s)
{
    WNW_REQUIRE(s);
    s->n_question = 0;
    s->n_prefix = 0;
    (void)wnw__token_log_set_suffix(&s->token_log, NULL, 0);
    return wnw__session_forget(s);
}

int wnw__session_check_room(const wnw_session *s, int32_t n)
{
    if (n > s->params.n_ctx - s->n_past)
        return wnw__fail(WNW_E_FULL, "%lld tokens do not fit the context of %d", (long long)s->n_past + n,
                         (int)s->params.n_ctx);
    return WNW_OK;
}

int wnw__session_check_tokens(const wnw_session *s, const int32_t *tokens, int32_t n)
{
    if (n > 0)
        WNW_TRY(wnw__session_check_room(s, n));
    return wnw__session_check_ids(s, tokens, n);
}

int wnw__session_check_ids(const wnw_session *s, const int32_t *tokens, int32_t n)
{
    if (n < 1)
        return wnw__fail(WNW_E_ARG, "no tokens to read");
    for (int32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->m->hp.n_vocab)
            return wnw__fail(WNW_E_RANGE, "token %d is %d, the vocabulary has 0 to %d", (int)i,
                             (int)tokens[i], (int)s->m->hp.n_vocab - 1);
    }
    return WNW_OK;
}

int wnw_session_prefill(wnw_session *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits, void *user)
{
    WNW_REQUIRE(s);
    WNW_REQUIRE(tokens || n < 1);
    WNW_TRY(wnw__session_check_tokens(s, tokens, n));
    return wnw__feed_prompt(s, tokens, n, 0, n, on_logits, user);
}

const float *wnw_session_logits(const wnw_session *s)
{
    return s && s->has_logits ? s->logits : NULL;
}

int32_t wnw_session_n_past(const wnw_session *s)
{
    return s ? s->n_past : 0;
}
