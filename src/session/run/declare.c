/* SPDX-License-Identifier: MIT */
/* Programs tell a session beforehand what they are going to do with it. */

#include "base/err.h"
#include "observe/recorders.h"
#include "policy/policy.h"
#include "profile/profile.h"
#include "session/rules/rules.h"
#include "session/run/run.h"
#include "session/session.h"
#include "text/prompt.h"

#include <stdlib.h>
#include <string.h>

/* The merged needs of all policies, with the largest window, as the driver asks for them once per layer. */
static struct wnw__record_needs needs_of(const wnw_policy *const *policies, int32_t n, bool generated)
{
    struct wnw__record_needs all = {.generated = generated};
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        wnw__needs_merge(&all.merged, &needs);
        if ((needs.flags & WNW_NEED_PERPLEXITY) && needs.window > all.n_likelihood)
            all.n_likelihood = needs.window;
    }
    return all;
}

/* Has the session record what the policies need; generated: queries of generated tokens too, because the rules plan
 * again while decoding. */
static int declare(wnw_session *s, const wnw_policy *const *policies, int32_t n, bool generated)
{
    WNW_TRY(wnw__policies_check(policies, n));
    WNW_TRY(wnw__observations_agree(policies, n));
    const struct wnw__record_needs needs = needs_of(policies, n, generated);
    return wnw__recorders_declare(&s->recorders, &s->cache, &needs, &s->shape);
}

void wnw__session_end_observing(wnw_session *s)
{
    (void)declare(s, NULL, 0, false); /* without policies nothing is allocated */
}

int wnw__session_record(wnw_session *s, const char *name, bool record)
{
    const struct wnw__recorder_type *type = wnw__recorder_type_find(name);
    const struct wnw__record_arg arg = {0};
    if (!type || type->needs)
        return wnw__fail(WNW_E_ARG, "nothing called '%.40s' can be recorded by itself", name);
    if (!record)
        wnw__recorders_drop(&s->recorders, type);
    else if (!wnw__recorders_find(&s->recorders, type))
        return wnw__recorders_open(&s->recorders, type, &arg, &s->shape);
    return WNW_OK;
}

static int check_profile(const wnw_session *s, const wnw_profile *p)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    if (!p) /* the first fingerprint reads all weights */
        return WNW_OK;
    wnw_model_fingerprint(s->m, fingerprint);
    if (strcmp(p->fingerprint, fingerprint) != 0)
        return wnw__fail(WNW_E_MISMATCH, "the profile belongs to model %s, the session's model is %s",
                         p->fingerprint, fingerprint);
    return WNW_OK;
}

static int check_template(const wnw_session *s, int32_t n_prefix, const int32_t *suffix, int32_t n_suffix)
{
    if (!suffix && n_suffix > 0)
        return wnw__fail(WNW_E_ARG, "a template's tail of %d tokens needs them, and they are NULL",
                         (int)n_suffix);
    if (n_prefix < 0 || n_suffix < 0)
        return wnw__fail(WNW_E_RANGE,
                         "a template of %d tokens before the text and %d after it; give at least 0",
                         (int)n_prefix, (int)n_suffix);
    if (n_suffix > s->m->hp.n_ctx_train)
        return wnw__fail(WNW_E_FULL,
                         "a template's tail of %d tokens is more than the %d the model was trained for",
                         (int)n_suffix, (int)s->m->hp.n_ctx_train);
    for (int32_t i = 0; i < n_suffix; i++)
        if (suffix[i] < 0 || suffix[i] >= s->m->hp.n_vocab)
            return wnw__fail(WNW_E_RANGE, "token %d of the template's tail is %d, the vocabulary has 0 to %d",
                             (int)i, (int)suffix[i], (int)s->m->hp.n_vocab - 1);
    return WNW_OK;
}

static int check_tasks(const wnw_session *s, const int32_t *const *tokens, const int32_t *n_tokens,
                       int32_t n_tasks)
{
    int64_t total = 0;
    if (n_tasks < 0)
        return wnw__fail(WNW_E_ARG, "%d tasks; give at least 0", (int)n_tasks);
    if (n_tasks > 0 && (!tokens || !n_tokens))
        return wnw__fail(WNW_E_ARG, "%d tasks need their tokens and lengths; one of the two is NULL",
                         (int)n_tasks);
    for (int32_t i = 0; i < n_tasks; i++) {
        if (!tokens[i])
            return wnw__fail(WNW_E_ARG, "the tokens of task %d are NULL", (int)i);
        if (n_tokens[i] < 1)
            return wnw__fail(WNW_E_ARG, "task %d has no tokens", (int)i);
        for (int32_t k = 0; k < n_tokens[i]; k++)
            if (tokens[i][k] < 0 || tokens[i][k] >= s->m->hp.n_vocab)
                return wnw__fail(WNW_E_RANGE, "token %d of task %d is %d, the vocabulary has 0 to %d", (int)k,
                                 (int)i, (int)tokens[i][k], (int)s->m->hp.n_vocab - 1);
        total += n_tokens[i];
        if (total > s->m->hp.n_ctx_train)
            return wnw__fail(WNW_E_FULL, "the tasks have more tokens than the %d the model was trained for",
                             (int)s->m->hp.n_ctx_train);
    }
    return WNW_OK;
}

/* ---- wnw_session_begin ---- */

static int check_prompt(const wnw_prompt *p)
{
    if (p->n_tokens < 0 || p->n_context < 0 || p->n_context > p->n_tokens || (!p->tokens && p->n_tokens > 0))
        return wnw__fail(WNW_E_RANGE, "a prompt of %d tokens with %d in its first piece", (int)p->n_tokens,
                         (int)p->n_context);
    return WNW_OK;
}

/* Whether the policy looks at the cache through expected questions. */
static bool wants_tasks(const wnw_policy *policy)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

/* Does everything that can fail without touching the session. *ids is {0} before and gets the tasks and
 * suffix that the session will remember. */
static int prepare(const wnw_session *s, const wnw_run *run, const wnw_run_more *more,
                   const struct wnw__eviction *rules, const wnw_prompt *prompt, struct wnw__token_log *ids)
{
    const int32_t n_later = prompt->n_tokens - prompt->n_context;
    const int32_t *const later = prompt->tokens ? prompt->tokens + prompt->n_context : NULL;
    WNW_TRY(check_profile(s, run->profile));
    WNW_TRY(wnw__rules_check(s, rules, run->profile));
    WNW_TRY(check_template(s, prompt->n_prefix, prompt->suffix, prompt->n_suffix));
    WNW_TRY(wnw__token_log_set_suffix(ids, prompt->suffix, prompt->n_suffix));
    if (more->n_tasks == 0 && n_later > 0 && wants_tasks(run->policy)) {
        WNW_TRY(check_tasks(s, &later, &n_later, 1));
        return wnw__token_log_set_tasks(ids, &later, &n_later, 1);
    }
    WNW_TRY(check_tasks(s, more->task_tokens, more->n_task_tokens, more->n_tasks));
    if (more->n_tasks == 0)
        return WNW_OK; /* nothing is allocated, so that ending rules cannot fail for lack of memory */
    return wnw__token_log_set_tasks(ids, more->task_tokens, more->n_task_tokens, more->n_tasks);
}

/* Declares the policy whose rules are followed and the further ones together. */
static int declare_all(wnw_session *s, const wnw_policy *policy, const wnw_run_more *more, bool generated)
{
    const int32_t n_own = policy ? 1 : 0;
    if (more->n_policies == 0) /* nothing is allocated, so that ending rules cannot fail for lack of memory */
        return declare(s, &policy, n_own, generated);
    WNW_TRY(wnw__policies_check(more->policies, more->n_policies));
    const wnw_policy **all = malloc(((size_t)more->n_policies + 1) * sizeof *all);
    if (!all)
        return wnw__fail(WNW_E_NOMEM, "no memory for a list of %d policies", (int)more->n_policies + n_own);
    all[0] = policy;
    memcpy(all + n_own, more->policies, (size_t)more->n_policies * sizeof *all);
    const int rc = declare(s, all, more->n_policies + n_own, generated);
    free(all);
    return rc;
}

int wnw_session_begin(wnw_session *s, const wnw_run *run)
{
    wnw_run own = wnw_run_default();
    wnw_run_more more = wnw_run_more_default();
    const wnw_prompt unknown = {0};
    wnw_policy *made = NULL;
    struct wnw__token_log ids = {0};
    WNW_REQUIRE(s);
    WNW_REQUIRE(run);
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &own, run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_run_more, &more, own.more));
    const wnw_prompt *const prompt = own.prompt ? own.prompt : &unknown;
    WNW_TRY(check_prompt(prompt)); /* before its numbers are computed with */
    if (own.recipe)
        WNW_TRY(wnw__run_policy(&made, s, &own, s->n_past > 0));
    else if (own.policy &&
             own.policy == s->rules.own) /* wnw_session_policy gave it, and the rules that own it end */
        WNW_TRY(wnw__policy_copy(&made, own.policy));
    own.policy = made ? made : own.policy;
    const struct wnw__eviction rules = {.policy = own.policy,
                                        .size = own.size,
                                        .phase = own.phase,
                                        .chunk = own.chunk,
                                        .every = own.every,
                                        .target = own.target,
                                        .every_ratio = own.every_ratio,
                                        .every_ratio_read = own.every_ratio_read,
                                        .slack = more.chunk_slack,
                                        .once = more.once};
    int rc = prepare(s, &own, &more, &rules, prompt, &ids);
    if (rc == WNW_OK) /* the last step that can fail; nothing was replaced before it */
        rc = declare_all(s, own.policy, &more, wnw__rules_replan(&rules));
    if (rc == WNW_OK) {
        wnw__token_log_swap_given(&s->token_log, &ids);
        wnw__rules_set(s, &rules, made, more.goes_on);
        made = NULL;
        s->profile = s->shape.profile = own.profile;
        s->n_prefix = prompt->n_prefix;
        s->n_question = more.question_later ? 0 : prompt->n_tokens - prompt->n_context;
    }
    wnw__token_log_free(&ids);
    wnw_policy_free(made);
    return rc;
}

const wnw_policy *wnw_session_policy(const wnw_session *s)
{
    return s ? s->rules.ev.policy : NULL;
}
