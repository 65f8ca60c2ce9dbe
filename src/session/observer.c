/* SPDX-License-Identifier: MIT */
#include "session/observer.h"

#include "observe/nll.h"
#include "observe/observe.h"
#include "observe/recorders.h"
#include "session/second_pass.h"
#include "session/session.h"

#include <stdlib.h>

struct wnw__observer {
    wnw_session *s;
    struct wnw__plan_source source;
    struct wnw__view *view;
    const bool *heads;             /* the argument of that name for the next wnw__view_layer; NULL = all */
    struct wnw__second_pass *pass; /* results of the last second pass, or NULL */
};

static const wnw_session *session_of(const struct wnw__plan_source *src)
{
    return ((const struct wnw__observer *)src->user)->s;
}

static void want_heads(const struct wnw__plan_source *src, const bool *used)
{
    struct wnw__observer *ob = src->user;
    ob->heads = used;
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs)
{
    struct wnw__observer *ob = src->user;
    const int rc = wnw__view_layer(ob->view, il, needs, ob->heads, obs);
    ob->heads = NULL;
    if (rc == WNW_OK && (needs->flags & WNW_NEED_SECOND_PASS) && ob->pass) {
        obs->pass2_sum = ob->pass->sum[il];
        obs->pass2_max = ob->pass->max[il];
        obs->n_pass2 = ob->pass->n_queries;
    }
    return rc;
}

static int second_pass(const struct wnw__plan_source *src, int32_t kind, char *warning)
{
    struct wnw__observer *ob = src->user;
    wnw__second_pass_free(ob->pass);
    return wnw__second_pass_run(&ob->pass, ob->s, (wnw_second_pass)kind, warning);
}

static bool is_skipped(const struct wnw__plan_source *src, int32_t il)
{
    return wnw__layer_is_swa(&session_of(src)->m->hp, il);
}

static int32_t n_entry(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    return wnw_cache_n(session_of(src), il, ih);
}

static int32_t n_final(const struct wnw__plan_source *src, int32_t il)
{
    return session_of(src)->cache.layers[il].n_final;
}

static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    return wnw_cache_positions(session_of(src), il, ih);
}

/* Whether layer il (il < 0: any layer) has an entry at a position where other heads hold other tokens. */
static bool is_mixed(const struct wnw__plan_source *src, int32_t il)
{
    const wnw_session *s = session_of(src);
    const int32_t n_mixed = il < 0 ? s->ids.n_mixed : s->cache.layers[il].n_mixed;
    const int32_t from = il < 0 ? 0 : il, to = il < 0 ? s->cache.n_layer : il + 1;
    for (int32_t i = from; i < to; i++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++)
            if (wnw_cache_n(s, i, ih) > 0 && wnw_cache_positions(s, i, ih)[0] < n_mixed)
                return true;
    return false;
}

static int perplexity(const struct wnw__plan_source *src, int32_t window, double *out)
{
    const wnw_session *s = session_of(src);
    return wnw__nll_perplexity(wnw__recorders_find(&s->recorders, &wnw__nll_recorder), s->n_past, window,
                               out);
}

int wnw__observer_new(struct wnw__observer **out, wnw_session *s)
{
    const struct wnw__viewed of = {.m = s->m,
                                   .cache = &s->cache,
                                   .recorders = &s->recorders,
                                   .proj = s->proj,
                                   .n_past = &s->n_past,
                                   .n_question = s->n_question,
                                   .n_ctx = s->params.n_ctx,
                                   .pool = wnw__engine_pool(s->engine)};
    struct wnw__observer *ob = calloc(1, sizeof *ob);
    *out = NULL;
    if (!ob)
        return wnw__fail(WNW_E_NOMEM, "no memory for observations");
    const int rc = wnw__view_new(&ob->view, &of);
    if (rc != WNW_OK) {
        wnw__observer_free(ob);
        return rc;
    }
    ob->s = s;
    ob->source = (struct wnw__plan_source){
        .n_layer = s->cache.n_layer,
        .n_head = s->m->hp.n_head,
        .n_head_kv = s->cache.n_head_kv,
        .n_embd_head = s->cache.d,
        .n_past = s->n_past,
        .n_prefix = s->n_prefix < s->n_past ? s->n_prefix : s->n_past,
        .n_moved = s->n_moved,
        .is_mixed = is_mixed,
        .entry_bytes = {.each = 2 * s->cache.row_bytes,
                        .exact = 2 * s->cache.tail_row_bytes,
                        .n_exact = wnw__cache_exact_after(&s->cache, 0)},
        .profile = s->profile,
        .user = ob,
        .is_skipped = is_skipped,
        .n_entry = n_entry,
        .positions = positions,
        .n_final = n_final,
        .perplexity = perplexity,
        .second_pass = second_pass,
        .want_heads = want_heads,
        .observe = observe,
    };
    *out = ob;
    return WNW_OK;
}

void wnw__observer_free(struct wnw__observer *ob)
{
    if (!ob)
        return;
    wnw__view_free(ob->view);
    wnw__second_pass_free(ob->pass);
    free(ob);
}

const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob)
{
    return &ob->source;
}
