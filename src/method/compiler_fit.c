/* SPDX-License-Identifier: MIT */
/* The settings that a table names are words of the parts' options, so that they are compared by name. */
#include "method/compiler.h"

#include "base/opt.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why a table does not serve, in two pieces: "was made ...", and what to do about it. */
struct misfit {
    char why[120], advice[80];
};

/* A number or choice among the part's options; `otherwise` if it has no such option. */
static int32_t option_of(const wnw_part *part, const void *opts, const char *name, int32_t otherwise)
{
    const int i = wnw__opt_find(part->options, name, strlen(name));
    int32_t value = otherwise;
    if (i >= 0)
        memcpy(&value, (const char *)opts + part->options[i].offset, sizeof value);
    return value;
}

static void say(struct misfit *m, const char *name, const char *theirs, const char *ours, bool force_helps)
{
    snprintf(m->why, sizeof m->why, "was made with %s=%s, not %s", name, theirs, ours);
    snprintf(m->advice, sizeof m->advice, "say %s=%s%s", name, theirs,
             force_helps ? ", or force=1 to use it all the same" : "");
}

/* Whether an option of the part, if it has it, is the setting that the table names; `theirs` < 0 = it names
 * none. `words` of a choice, NULL for numbers. */
static bool same_setting(const wnw_part *part, const void *opts, const char *name, int32_t theirs,
                         const char *const *words, bool force_helps, struct misfit *m)
{
    const int32_t ours = option_of(part, opts, name, theirs);
    char a[16], b[16];
    if (theirs < 0 || ours == theirs)
        return true;
    snprintf(a, sizeof a, "%d", theirs);
    snprintf(b, sizeof b, "%d", ours);
    say(m, name, words ? words[theirs] : a, words ? words[ours] : b, force_helps);
    return false;
}

/* Scores that were made under other options are other scores. */
static bool same_settings(const struct wnw__compiler_table *t, const wnw_part *part, const void *opts,
                          struct misfit *m)
{
    const bool force = option_of(part, opts, "force", 0);
    const bool pooled = t->pool > WNW_ALPHA_POOL_NONE && t->kernel > 0 &&
                        option_of(part, opts, "pool", WNW_ALPHA_POOL_NONE) != WNW_ALPHA_POOL_NONE;
    const struct {
        const char *name;
        int32_t theirs;
        const char *const *words;
        bool force_helps;
    } rows[] = {
        {"alpha_scope", t->alpha_scope, wnw__alpha_scopes, false},
        {"score_norm", t->score_norm, wnw__score_norms, false},
        {"entropy_norm", t->entropy_norm, NULL, false},
        {"window", t->window > 0 ? t->window : -1, NULL, false},
        {"n_sink", t->n_sink, NULL, true},
        {"pool", t->pool, wnw__alpha_pools, true},
        {"kernel", pooled ? t->kernel : -1, NULL, true},
        {"utility", t->utility, wnw__utilities, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(force && rows[i].force_helps) &&
            !same_setting(part, opts, rows[i].name, rows[i].theirs, rows[i].words, rows[i].force_helps, m))
            return false;
    return true;
}

static bool same_model(const wnw_profile *profile, const struct wnw__table_use *use, const wnw_part *part,
                       const void *opts, struct misfit *m)
{
    const struct wnw__compiler_table *t = &profile->compiler;
    const bool force = option_of(part, opts, "force", 0);
    if (profile->model.n_head == use->model->n_head &&
        (force || (t->n_layer == use->model->n_layer && !t->foreign)))
        return true;
    snprintf(m->advice, sizeof m->advice, "calibrate this one%s",
             profile->model.n_head == use->model->n_head ? ", or say force=1 to use it all the same" : "");
    if (profile->model.n_head == use->model->n_head && t->n_layer == use->model->n_layer)
        snprintf(m->why, sizeof m->why, "was made for another model");
    else
        snprintf(m->why, sizeof m->why, "has %d layers of %d heads, the model %d of %d", t->n_layer,
                 profile->model.n_head, use->model->n_layer, use->model->n_head);
    return false;
}

/* Whether the budget is as much of the prompt, within a factor of 2, as the table's was. */
static bool serves_share(const struct wnw__compiler_table *t, const struct wnw__table_use *use)
{
    if (use->n_tokens <= 0 || t->least_length <= 0)
        return false;
    const double share = use->budget / use->n_tokens;
    return share >= 0.5 * t->budget / t->most_length && share <= 2.0 * t->budget / t->least_length;
}

static bool serves_budget(const struct wnw__compiler_table *t, const struct wnw__table_use *use,
                          struct misfit *m)
{
    const double budget = use->budget;
    if (t->budget <= 0 || (budget <= 2.0 * t->budget && budget >= 0.5 * t->budget) || serves_share(t, use))
        return true;
    snprintf(m->why, sizeof m->why, "was made for a budget of %d and serves %d to %d, not %g", t->budget,
             (t->budget + 1) / 2, 2 * t->budget, budget);
    snprintf(m->advice, sizeof m->advice, "calibrate for this budget, or say table=none");
    return false;
}

/* Whether the part reads what the table has: a scorer its weights, a layer budget its thresholds. */
static bool reads_table(const wnw_part *part, const void *opts, const struct wnw__compiler_table *t)
{
    wnw_needs needs = {0};
    if (!part->needs || !(part->kind == WNW_PART_SCORER ? t->weight : t->tau))
        return false;
    part->needs(opts, &needs);
    return needs.flags & WNW_NEED_PROFILE && needs.profiles_optional >> WNW_PROFILE_COMPILER & 1u;
}

/* The first part that the table does not serve; NULL if there is none. *read: whether any part reads it. */
static const wnw_part *misfit_of(const wnw_policy *p, const wnw_profile *profile,
                                 const struct wnw__table_use *use, bool *read, struct misfit *m)
{
    const struct wnw__compiler_table *t = &profile->compiler;
    *read = false;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_part *part = &p->part[k].head;
        const void *opts = p->opts[k];
        if (!reads_table(part, opts, t))
            continue;
        *read = true;
        if (!same_model(profile, use, part, opts, m) || !same_settings(t, part, opts, m) ||
            !serves_budget(t, use, m))
            return part;
    }
    return NULL;
}

static int leave_out(wnw_profile **without, const wnw_profile *profile)
{
    *without = malloc(sizeof **without);
    if (!*without)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a profile");
    **without = *profile;
    (*without)->kinds &= ~(1u << WNW_PROFILE_COMPILER);
    (*without)->compiler = (struct wnw__compiler_table){0};
    return WNW_OK;
}

int wnw__table_fit(wnw_profile **without, const wnw_policy *p, const wnw_profile *profile,
                   const struct wnw__table_use *use, char *warning)
{
    struct misfit m = {0};
    bool read;
    *without = NULL;
    if (!(wnw_profile_kinds(profile) >> WNW_PROFILE_COMPILER & 1u))
        return WNW_OK;
    const wnw_part *part = misfit_of(p, profile, use, &read, &m);
    if (part && !(profile->found >> WNW_PROFILE_COMPILER & 1u))
        return wnw__fail(WNW_E_MISMATCH, "%s: the compiler profile %s; %s", part->name, m.why, m.advice);
    if (part) {
        wnw__warn(warning, "the compiler profile that was found is left out: it %s", m.why);
        return leave_out(without, profile);
    }
    const int32_t budget = profile->compiler.budget;
    if (read && budget > 0 && fabs(use->budget - budget) >= 1)
        wnw__warn(warning, "the compiler profile was made for a budget of %d, not %g", budget, use->budget);
    return WNW_OK;
}
