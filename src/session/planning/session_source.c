/* SPDX-License-Identifier: MIT */
/* What a plan sees of a session: its cache, what was recorded, and the results of a second pass. */
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/planning/second_pass.h"
#include "session/planning/token_texts.h"
#include "session/session.h"

#include <stdlib.h>

struct owner {
    wnw_session *s;
    struct wnw__second_pass *pass; /* results of the last second pass, or NULL */
    struct wnw__token_texts texts; /* made when a policy asks for them */
};

static void free_owner(void *user)
{
    struct owner *o = user;
    wnw__second_pass_free(o->pass);
    wnw__token_texts_free(&o->texts);
    free(o);
}

static int second_pass(const struct wnw__plan_source *src, const wnw_needs *needs, char *warning)
{
    struct owner *o = wnw__source_owner(src);
    wnw__second_pass_free(o->pass);
    return wnw__second_pass_run(&o->pass, o->s, needs, warning);
}

static int allocated(const struct wnw__plan_source *src, const wnw_plan *plan, uint64_t *bytes)
{
    const struct owner *o = wnw__source_owner(src);
    return wnw__session_allocated(bytes, o->s, plan);
}

static int add(void *owner, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
               wnw_observation *obs)
{
    struct owner *o = owner;
    (void)source;
    (void)heads;
    if ((needs->flags & WNW_NEED_SECOND_PASS) && o->pass) {
        obs->pass2_sum = o->pass->sum[obs->il];
        obs->pass2_max = o->pass->max[obs->il];
        obs->n_pass2 = o->pass->n_queries;
        obs->pass2_places = o->pass->place;
        obs->n_pass2_places = o->pass->n_places;
    }
    if (needs->flags & WNW_NEED_TOKEN_TEXT) {
        WNW_TRY(wnw__token_texts_reach(&o->texts, o->s->m, o->s->token_log.tokens, o->s->n_past));
        obs->token_text = o->texts.at;
    }
    return WNW_OK;
}

static int open_source(struct wnw__plan_source *src, wnw_session *s, struct owner *owner)
{
    *src = (struct wnw__plan_source){
        .shape = s->shape.model,
        .n_past = s->n_past,
        .n_prefix = s->n_prefix < s->n_past ? s->n_prefix : s->n_past,
        .n_judged = s->n_judged,
        .n_renumbered = s->n_renumbered,
        .n_ambiguous = s->token_log.n_ambiguous,
        .entry_bytes = {.each = 2 * s->cache.row_bytes,
                        .f16 = 2 * s->cache.tail_row_bytes,
                        .n_f16 = wnw__cache_f16_after(&s->cache, 0)},
        .profile = s->profile,
        .second_pass = second_pass,
        .allocated = allocated,
    };
    const struct wnw__source_of of = {
        .entries = wnw__source_entries(&s->cache),
        .n_past = &s->n_past,
        .n_question = s->n_question,
        .attn_scale = s->m->hp.attn_scale,
        .pool = wnw__engine_pool(s->engine),
        .recorders = &s->recorders,
        .m = s->m,
        .cache = &s->cache,
        .proj = s->proj,
        .add = add,
        .free = free_owner,
        .owner = owner,
    };
    return wnw__source_open(src, &of);
}

int wnw__session_source_plain(struct wnw__plan_source *src, wnw_session *s)
{
    struct owner *owner = calloc(1, sizeof *owner);
    *src = (struct wnw__plan_source){0};
    if (!owner)
        return wnw__fail(WNW_E_NOMEM, "no memory for observations");
    owner->s = s;
    const int rc = open_source(src, s, owner);
    if (rc != WNW_OK) {
        *src = (struct wnw__plan_source){0};
        free(owner);
    }
    return rc;
}

wnw_session *wnw__session_of_source(const struct wnw__plan_source *src)
{
    const struct owner *o = wnw__source_owner(src);
    return o->s;
}
