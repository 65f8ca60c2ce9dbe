/* SPDX-License-Identifier: MIT */
/* A timeline from empty cache to decoded token; compression itself is in compress.c and apply.c. */
#include "session/session.h"

#include "forward/forward.h"
#include "forward/matmul.h"
#include "kernel/kernel.h"
#include "observe/observe.h"
#include "observe/projnorm.h"
#include "observe/qstats.h"
#include "policy/policy.h"
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

wnw_session_params wnw_session_default_params(void)
{
    return (wnw_session_params){.n_ubatch = 512, .kv_type = WNW_KV_F16, .attn = WNW_ATTN_OWN};
}

static const char *const kv_type_names[] = {
    [WNW_KV_F16] = "f16", [WNW_KV_F32] = "f32", [WNW_KV_Q8_0] = "q8_0", [WNW_KV_Q4_0] = "q4_0"};

const char *wnw_kv_type_name(wnw_kv_type t)
{
    return (size_t)t < sizeof kv_type_names / sizeof *kv_type_names ? kv_type_names[t] : "?";
}

int wnw_kv_type_parse(wnw_kv_type *out, const char *name)
{
    WNW_REQUIRE(out);
    *out = WNW_KV_F16;
    WNW_REQUIRE(name);
    for (size_t i = 0; i < sizeof kv_type_names / sizeof *kv_type_names; i++) {
        if (strcmp(name, kv_type_names[i]) == 0) {
            *out = (wnw_kv_type)i;
            return WNW_OK;
        }
    }
    return wnw__fail(WNW_E_ARG, "unknown KV type '%.20s'; use f16, f32, q8_0 or q4_0", name);
}

size_t wnw_kv_entry_bytes(wnw_kv_type t, int32_t n_embd_head)
{
    return 2 * wnw__row_bytes(t, n_embd_head);
}

static int resolve_params(const wnw_model *m, const wnw_session_params *in, wnw_session_params *out)
{
    *out = in ? *in : wnw_session_default_params();
    if (out->n_ctx < 0 || out->n_ctx > m->hp.n_ctx_train)
        return wnw__fail(WNW_E_RANGE, "a context of %d tokens: this model takes 1 to %d", (int)out->n_ctx,
                         (int)m->hp.n_ctx_train);
    if (out->n_ubatch < 0 || out->n_ubatch > 65536)
        return wnw__fail(WNW_E_RANGE, "a ubatch of %d tokens: 1 to 65536 are allowed", (int)out->n_ubatch);
    if (out->n_threads < 0 || out->n_threads > 512)
        return wnw__fail(WNW_E_RANGE, "%d threads: 1 to 512 are allowed", (int)out->n_threads);
    if ((int)out->kv_type < WNW_KV_F16 || out->kv_type > WNW_KV_Q4_0)
        return wnw__fail(WNW_E_ARG, "KV type number %d does not exist", (int)out->kv_type);
    if (out->attn != WNW_ATTN_OWN && out->attn != WNW_ATTN_GGML)
        return wnw__fail(WNW_E_ARG, "attention number %d does not exist", (int)out->attn);
    out->n_ctx = out->n_ctx ? out->n_ctx : m->hp.n_ctx_train;
    out->n_ubatch = out->n_ubatch ? out->n_ubatch : 512;
    out->n_threads = out->n_threads ? out->n_threads : wnw_usable_cores();
    return WNW_OK;
}

static int init_cache(wnw_session *s)
{
    const struct wnw__hparams *hp = &s->m->hp;
    int32_t *n_swa = calloc((size_t)hp->n_layer, sizeof *n_swa);
    if (!n_swa)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    for (int32_t il = 0; il < hp->n_layer; il++)
        n_swa[il] = wnw__layer_is_swa(hp, il) ? hp->n_swa : 0;
    const int32_t growth = s->params.attn == WNW_ATTN_GGML ? WNW_CACHE_GROWTH_GGML : WNW_CACHE_GROWTH;
    const int rc = wnw__cache_init(&s->cache, hp->n_layer, hp->n_head_kv, hp->n_embd_head, s->params.kv_type,
                                   growth, n_swa);
    free(n_swa);
    return rc;
}

static int init_session(wnw_session *s, const wnw_model *m, const wnw_session_params *params)
{
    const struct wnw__hparams *hp = &m->hp;
    s->m = m;
    WNW_TRY(wnw__nll_init(&s->nll, 0));
    WNW_TRY(resolve_params(m, params, &s->params));
    WNW_TRY(init_cache(s));
    const struct wnw__attend_dims dims = {
        .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv,
        .d = hp->n_embd_head,
        .n_threads = s->params.n_threads,
        .n_ubatch = s->params.n_ubatch,
    };
    WNW_TRY(wnw__attend_shared_new(&s->shared, &dims));
    WNW_TRY(wnw__matmul_new(&s->matmul, s->params.n_threads));
    s->ops = calloc((size_t)hp->n_layer, sizeof *s->ops);
    s->logits = calloc((size_t)hp->n_vocab, sizeof *s->logits);
    if (!s->ops || !s->logits)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    for (int32_t il = 0; il < hp->n_layer; il++)
        s->ops[il] = (struct wnw__attend_op){
            .shared = s->shared, .il = il, .scale = hp->attn_scale, .batch = &s->batch};
    return WNW_OK;
}

int wnw_session_new(wnw_session **out, const wnw_model *m, const wnw_session_params *params)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    wnw_session *s = calloc(1, sizeof *s);
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for a session");
    const int rc = init_session(s, m, params);
    if (rc != WNW_OK) {
        wnw_session_free(s);
        return rc;
    }
    *out = s;
    return WNW_OK;
}

static void unhide(wnw_session *s)
{
    const int32_t n = s->cache.n_layer * s->cache.n_head_kv;
    for (int32_t i = 0; s->hidden && i < n; i++)
        free(s->hidden[i]);
    free(s->hidden);
    s->hidden = NULL;
    s->hidden_n = 0;
}

void wnw_session_free(wnw_session *s)
{
    if (!s)
        return;
    wnw__graph_free(&s->prefill);
    wnw__graph_free(&s->decode);
    unhide(s);
    wnw__attend_shared_free(s->shared);
    wnw__matmul_free(s->matmul);
    wnw__cache_free(&s->cache);
    wnw__qstats_free(s->qstats);
    wnw__nll_free(&s->nll);
    wnw__proj_free(s->proj);
    wnw__proj_free(s->head_proj);
    wnw__trace_free(&s->trace, s->m->hp.n_layer);
    wnw__rules_free(&s->rules);
    free(s->window.q);
    free(s->ops);
    free(s->logits);
    free(s);
}

int wnw_session_reset(wnw_session *s)
{
    WNW_REQUIRE(s);
    wnw__graph_free(&s->prefill);
    unhide(s);
    wnw__trace_drop_queries(&s->trace, 0, s->cache.n_layer);
    wnw__rules_reset(&s->rules);
    s->window.n = 0;
    wnw__qstats_reset(s->qstats);
    s->nll.n = s->nll.end = 0;
    s->n_past = s->n_moved = s->trace.n_mixed = 0;
    s->n_gone = 0;
    s->n_question = 0;
    s->n_prefix = 0;
    wnw__trace_set_suffix(&s->trace, NULL, 0);
    s->has_logits = false;
    wnw__cache_clear(&s->cache);
    return WNW_OK;
}

int wnw_session_set_question(wnw_session *s, int32_t n_tokens)
{
    WNW_REQUIRE(s);
    if (n_tokens < 0)
        return wnw__fail(WNW_E_RANGE, "a question of %d tokens; give at least 0", (int)n_tokens);
    s->n_question = n_tokens;
    return WNW_OK;
}

int wnw_session_set_template(wnw_session *s, int32_t n_prefix, const int32_t *suffix, int32_t n_suffix)
{
    WNW_REQUIRE(s);
    WNW_REQUIRE(suffix || n_suffix < 1);
    if (n_prefix < 0 || n_suffix < 0)
        return wnw__fail(WNW_E_RANGE,
                         "a template of %d tokens before the text and %d behind it; give at least 0",
                         (int)n_prefix, (int)n_suffix);
    if (n_suffix > s->m->hp.n_ctx_train)
        return wnw__fail(WNW_E_FULL,
                         "a template's tail of %d tokens is more than the %d the model was trained for",
                         (int)n_suffix, (int)s->m->hp.n_ctx_train);
    for (int32_t i = 0; i < n_suffix; i++)
        if (suffix[i] < 0 || suffix[i] >= s->m->hp.n_vocab)
            return wnw__fail(WNW_E_RANGE, "token %d of the template's tail is %d, the vocabulary has 0 to %d",
                             (int)i, (int)suffix[i], (int)s->m->hp.n_vocab - 1);
    WNW_TRY(wnw__trace_set_suffix(&s->trace, suffix, n_suffix));
    s->n_prefix = n_prefix;
    return WNW_OK;
}

/* A window for `cap` queries of every layer, none kept yet. */
static int window_new(const wnw_session *s, int32_t cap, struct wnw__window *out)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const size_t row = (size_t)hp->n_head * (size_t)hp->n_embd_head;
    *out = (struct wnw__window){.cap = cap};
    if (cap == 0)
        return WNW_OK;
    out->q = calloc((size_t)hp->n_layer * (size_t)cap * row, sizeof *out->q);
    return out->q ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a window of %d queries", (int)cap);
}

int wnw_session_observe(wnw_session *s, const wnw_policy *const *policies, int32_t n)
{
    struct wnw__window window;
    struct wnw__stats stats = {0};
    wnw_needs all = {0};
    WNW_REQUIRE(s);
    WNW_TRY(wnw__policies_check(policies, n));
    WNW_TRY(wnw__observations_agree(policies, n));
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        wnw__needs_merge(&all, &needs);
    }
    /* The largest window of all, as the driver asks for it when it looks at a layer for all policies at once. */
    const int32_t cap = all.flags & WNW_NEED_WINDOW_ATTN ? all.window : 0;
    WNW_TRY(window_new(s, cap < s->params.n_ctx ? cap : s->params.n_ctx, &window));
    int rc = wnw__session_stats_new(s, policies, n, &stats);
    if (rc == WNW_OK)
        rc = wnw__trace_observe(s, &all); /* the last thing that can fail: until here nothing was replaced */
    if (rc != WNW_OK) {
        wnw__session_stats_free(&stats);
        free(window.q);
        return rc;
    }
    wnw__graph_free(&s->decode); /* they take other notes from now on */
    wnw__graph_free(&s->prefill);
    wnw__session_stats_take(s, &stats);
    free(s->window.q);
    s->window = window;
    return WNW_OK;
}

int wnw_session_set_profile(wnw_session *s, const wnw_profile *p)
{
    char fingerprint[17];
    WNW_REQUIRE(s);
    wnw_model_fingerprint(s->m, fingerprint);
    if (p && strcmp(p->fingerprint, fingerprint) != 0)
        return wnw__fail(WNW_E_MISMATCH, "the profile belongs to model %s, the session's model is %s",
                         p->fingerprint, fingerprint);
    s->profile = p;
    return WNW_OK;
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

int wnw__session_feed(wnw_session *s, const int32_t *tokens, int32_t n, int32_t done, int32_t total,
                      wnw_logits_fn on_logits, void *user)
{
    WNW_TRY(wnw__trace_reserve(s, 0, s->cache.n_layer, n));
    /* All at once: growing ubatch by ubatch would copy the cache again and again. Sliding layers stay short. */
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        if (s->cache.layers[il].n_swa == 0)
            WNW_TRY(wnw__cache_reserve_layer(&s->cache, il, n, true));
    }
    wnw__nll_begin(&s->nll, s->n_past, n);
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = n - at < s->params.n_ubatch ? n - at : s->params.n_ubatch;
        WNW_TRY(wnw__forward(s, tokens + at, n_now, at, false, on_logits, user));
        at += n_now;
        if (s->params.progress && !s->params.progress(done + at, total, s->params.progress_user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after %d of %d tokens", (int)(done + at),
                             (int)total);
    }
    wnw__nll_finish(&s->nll);
    return WNW_OK;
}

int wnw_session_prefill(wnw_session *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits, void *user)
{
    WNW_REQUIRE(s);
    WNW_REQUIRE(tokens || n < 1);
    WNW_TRY(wnw__session_check_tokens(s, tokens, n));
    return wnw__session_feed(s, tokens, n, 0, n, on_logits, user);
}

int wnw_session_decode(wnw_session *s, int32_t token)
{
    WNW_REQUIRE(s);
    WNW_TRY(wnw__session_check_tokens(s, &token, 1));
    WNW_TRY(wnw__forward(s, &token, 1, 0, true, NULL, NULL));
    return wnw__rules_after_decode(s);
}

const float *wnw_session_logits(const wnw_session *s)
{
    return s && s->has_logits ? s->logits : NULL;
}

int32_t wnw_session_n_past(const wnw_session *s)
{
    return s ? s->n_past : 0;
}

void wnw_cache_get_stats(const wnw_session *s, wnw_cache_stats *out)
{
    if (!out)
        return;
    *out = (wnw_cache_stats){0};
    if (!s)
        return;
    const int64_t n = wnw__cache_entries(&s->cache), n_read = s->n_past + s->n_gone;
    *out = (wnw_cache_stats){
        .n_entries = n,
        .bytes = wnw__cache_bytes(&s->cache),
        .bytes_entries = (uint64_t)n * 2 * s->cache.row_bytes,
        .bytes_full = wnw__cache_bytes_for(&s->cache, n_read < INT32_MAX ? (int32_t)n_read : INT32_MAX),
        .growth = s->cache.growth,
    };
}

static bool head_exists(const wnw_session *s, int32_t il, int32_t ih)
{
    return s && il >= 0 && il < s->cache.n_layer && ih >= 0 && ih < s->cache.n_head_kv;
}

int32_t wnw_cache_n(const wnw_session *s, int32_t il, int32_t ih)
{
    return head_exists(s, il, ih) ? s->cache.layers[il].len[ih] : 0;
}

const int32_t *wnw_cache_positions(const wnw_session *s, int32_t il, int32_t ih)
{
    const struct wnw__kv_layer *l = head_exists(s, il, ih) ? &s->cache.layers[il] : NULL;
    return l && l->pos ? l->pos + l->off[ih] : NULL;
}

/* Tests only, so it may assume a plan made for this session. */
int wnw__session_mask(wnw_session *s, const wnw_plan *plan)
{
    const int32_t n_kv = s->cache.n_head_kv;
    if (s->params.attn != WNW_ATTN_GGML)
        return wnw__fail(WNW_E_UNSUPPORTED, "hiding entries needs the ggml attention");
    unhide(s);
    s->hidden = calloc((size_t)s->cache.n_layer * (size_t)n_kv, sizeof *s->hidden);
    if (!s->hidden)
        return wnw__fail(WNW_E_NOMEM, "no memory for masks");
    s->hidden_n = s->n_past;
    for (int32_t i = 0; i < s->cache.n_layer * n_kv; i++) {
        const int32_t il = i / n_kv, ih = i % n_kv;
        const int32_t *kept, *pos = wnw_cache_positions(s, il, ih);
        const int32_t n_kept = wnw_plan_head(plan, il, ih, &kept), n = wnw_cache_n(s, il, ih);
        if (s->cache.layers[il].n_swa > 0)
            continue; /* never compacted, and its entries move when it is trimmed */
        s->hidden[i] = malloc((size_t)s->n_past + 1);
        if (!s->hidden[i])
            return wnw__fail(WNW_E_NOMEM, "no memory for masks");
        for (int32_t j = 0, k = 0; j < n; j++) {
            while (k < n_kept && kept[k] < pos[j])
                k++;
            s->hidden[i][j] = !(k < n_kept && kept[k] == pos[j]);
        }
    }
    return WNW_OK;
}
