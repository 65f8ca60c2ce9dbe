/* SPDX-License-Identifier: MIT */
/* What is known of a run where its policy is still to be chosen (chooser/choose.c), and the choice for a session. */
#include "forward/recorder.h"
#include "model/model.h"
#include "policy/policy.h"
#include "profile/profile.h"
#include "session/run/run.h"
#include "session/session.h"
#include "text/prompt.h"

#include <stdio.h>
#include <string.h>

int wnw_policy_facts_of(wnw_policy_facts *out, const wnw_model *m, const wnw_run *run)
{
    wnw_run r = wnw_run_default();
    wnw_run_more more = wnw_run_more_default();
    const wnw_prompt unknown = {0};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_policy_facts, out));
    wnw__sized_give(out, &(wnw_policy_facts){0});
    WNW_REQUIRE(m);
    WNW_REQUIRE(run);
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &r, run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_run_more, &more, r.more));
    const wnw_prompt *const prompt = r.prompt ? r.prompt : &unknown;
    const struct wnw__shape shape = wnw__model_shape(m);
    wnw_policy_facts own = {WNW_INIT(wnw_policy_facts),
                            .phase = r.phase,
                            .decodes = r.every > 0,
                            .question_known = !more.question_later &&
                                              prompt->n_tokens - prompt->n_context > prompt->n_suffix,
                            .rope_unknown = m->hp.rope_unknown,
                            .n_tokens = more.question_later ? prompt->n_context : prompt->n_tokens,
                            .n_ctx_train = m->hp.n_ctx_train,
                            .feeds_again = true,
                            .queries_unknown = wnw__shared_layer(&shape) >= 0};
    wnw_policy_facts_add(&own, r.profile);
    wnw__sized_give(out, &own);
    return WNW_OK;
}

/* The share of the prompt's entries that the size leaves; 0 = not known. */
static double share_kept(const wnw_session *s, const wnw_size *size, int32_t n_tokens)
{
    double share = 0;
    wnw_model_info info = wnw_model_info_default();
    (void)wnw_model_get_info(s->m, &info); /* does not fail for a model */
    if (size->kind == WNW_SIZE_RATIO)
        share = 1 - size->ratio;
    else if (n_tokens > 0 && size->kind == WNW_SIZE_BUDGET)
        share = (double)size->budget / n_tokens;
    else if (n_tokens > 0 && size->kind == WNW_SIZE_BYTES) {
        const uint64_t full = wnw_kv_bytes(s->params.kv_type, info.n_embd_head, info.n_head_kv,
                                           info.n_layer - info.n_layer_swa, n_tokens);
        share = full > 0 ? (double)size->bytes / (double)full : 0;
    }
    share = share > 0 ? share : 0;
    return share > 1 ? 1 : share;
}

int wnw__run_policy(wnw_policy **out, const wnw_session *s, const wnw_run *run, bool was_read)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    wnw_policy_choice choice = wnw_policy_choice_default();
    char recipe[300];
    double quality;
    *out = NULL;
    if (run->policy)
        return wnw__fail(WNW_E_ARG, "a run has the recipe '%.60s' and a policy; give one of the two",
                         run->recipe);
    if (!wnw_automatic_is(run->recipe, &quality))
        return wnw_policy_parse(out, run->recipe, NULL);
    WNW_TRY(wnw_policy_facts_of(&facts, s->m, run));
    facts.kept = share_kept(s, &run->size, facts.n_tokens);
    facts.was_read = was_read;
    if (quality > 0)
        WNW_TRY(wnw_policy_choose_quality(&choice, &facts, run->profile, quality));
    else
        WNW_TRY(wnw_policy_choose(&choice, &facts));
    /* What follows "auto" is the head budget of a quality. wnw_automatic_is limits its length. */
    snprintf(recipe, sizeof recipe, "%s%s", choice.recipe, run->recipe + strlen("auto"));
    return wnw_policy_parse(out, recipe, NULL);
}
