/* SPDX-License-Identifier: MIT */
/* What programs say to a session about what they are going to do with it. */
#include "session/declare.h"

#include "observe/recorders.h"
#include "policy/policy.h"
#include "profile/profile.h"
#include "session/session.h"

#include <string.h>

/* The largest window of all policies, as the driver asks for it when it looks at a layer for all at once. */
static struct wnw__record_ask ask_of(const wnw_policy *const *policies, int32_t n, bool generated)
{
    struct wnw__record_ask ask = {.generated = generated};
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        wnw__needs_merge(&ask.needs, &needs);
        if ((needs.flags & WNW_NEED_PERPLEXITY) && needs.window > ask.n_likelihood)
            ask.n_likelihood = needs.window;
    }
    return ask;
}

int wnw__session_declare(wnw_session *s, const wnw_policy *const *policies, int32_t n, bool generated)
{
    WNW_TRY(wnw__policies_check(policies, n));
    WNW_TRY(wnw__observations_agree(policies, n));
    const struct wnw__record_ask ask = ask_of(policies, n, generated);
    return wnw__recorders_declare(&s->recorders, &s->cache, &ask, &s->shape);
}

int wnw_session_observe(wnw_session *s, const wnw_policy *const *policies, int32_t n)
{
    WNW_REQUIRE(s);
    return wnw__session_declare(s, policies, n, false);
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
    WNW_TRY(wnw__ids_set_suffix(&s->ids, suffix, n_suffix));
    s->n_prefix = n_prefix;
    return WNW_OK;
}

int wnw_session_set_tasks(wnw_session *s, const int32_t *const *tokens, const int32_t *n_tokens,
                          int32_t n_tasks)
{
    int64_t total = 0;
    WNW_REQUIRE(s);
    if (n_tasks < 0)
        return wnw__fail(WNW_E_ARG, "%d tasks; give at least 0", (int)n_tasks);
    WNW_REQUIRE(tokens || n_tasks == 0);
    WNW_REQUIRE(n_tokens || n_tasks == 0);
    for (int32_t i = 0; i < n_tasks; i++) {
        WNW_REQUIRE(tokens[i]);
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
    return wnw__ids_set_tasks(&s->ids, tokens, n_tokens, n_tasks);
}
