/* SPDX-License-Identifier: MIT */
/* A second timeline that goes on where the first one is: one prompt is read once and then continued in
 * several ways, e.g. under several plans. Graphs and scratch memory are not copied: the engine makes them
 * when they are needed. */
#include "session/session.h"

#include <string.h>

static int copy_timeline(wnw_session *to, const wnw_session *from)
{
    WNW_TRY(wnw__cache_copy(&to->cache, &from->cache));
    WNW_TRY(wnw__recurrent_copy(to->recurrent, from->recurrent));
    WNW_TRY(wnw__recorders_copy(&to->recorders, &from->recorders, &to->shape));
    WNW_TRY(wnw__token_log_copy(&to->token_log, &from->token_log, from->n_past));
    WNW_TRY(wnw__rules_copy(&to->rules, &from->rules));
    WNW_TRY(
        wnw__masks_copy(&to->masks, &from->masks, (size_t)from->m->hp.n_layer * (size_t)from->m->hp.n_head));
    to->n_past = from->n_past;
    to->n_prefix = from->n_prefix;
    to->pos_shift = from->pos_shift;
    to->n_renumbered = from->n_renumbered;
    to->n_judged = from->n_judged;
    to->n_run = from->n_run;
    to->n_question = from->n_question;
    to->profile = to->shape.profile = from->profile;
    to->has_logits = from->has_logits;
    memcpy(to->logits, from->logits, (size_t)from->m->hp.n_vocab * sizeof *to->logits);
    return WNW_OK;
}

int wnw_session_copy(wnw_session **out, const wnw_session *s)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(s);
    return wnw__session_copy_on(out, s, s->owns_engine ? NULL : s->engine);
}

int wnw__session_copy_on(wnw_session **out, const wnw_session *s, wnw_engine *e)
{
    wnw_session *copy;
    *out = NULL;
    WNW_TRY(e ? wnw_session_new_on(&copy, e, &s->params) : wnw_session_new(&copy, s->m, &s->params));
    const int rc = copy_timeline(copy, s);
    if (rc != WNW_OK) {
        wnw_session_free(copy);
        return rc;
    }
    *out = copy;
    return WNW_OK;
}
