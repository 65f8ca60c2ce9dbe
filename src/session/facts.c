/* SPDX-License-Identifier: MIT */
/* What is known of a run where its policy is still to be chosen (policy/choose.c). */
#include "forward/recorder.h"
#include "model/model.h"
#include "policy/policy.h"
#include "profile/profile.h"

int wnw_policy_facts_of(wnw_policy_facts *out, const wnw_model *m, const wnw_run *run)
{
    wnw_run r = wnw_run_default();
    wnw_prompt prompt = wnw_prompt_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_policy_facts, out));
    wnw__sized_give(out, &(wnw_policy_facts){0});
    WNW_REQUIRE(m);
    WNW_REQUIRE(run);
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &r, run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt, &prompt, r.prompt));
    const struct wnw__shape shape = wnw__model_shape(m);
    wnw_policy_facts own = {WNW_INIT(wnw_policy_facts),
                            .phase = r.phase,
                            .decodes = r.every > 0,
                            .question_known =
                                !r.question_later && prompt.n_tokens - prompt.n_context > prompt.n_suffix,
                            .rope_unknown = m->hp.rope_unknown,
                            .n_tokens = r.question_later ? prompt.n_context : prompt.n_tokens,
                            .n_ctx_train = m->hp.n_ctx_train,
                            .feeds_again = true,
                            .queries_unknown = wnw__shared_layer(&shape) >= 0};
    wnw_policy_facts_add(&own, r.profile);
    wnw__sized_give(out, &own);
    return WNW_OK;
}
