/* SPDX-License-Identifier: MIT */
/* What a conversation keeps, and when: sizes, endless contexts, and rules that change on the way. */
#include "cli/chat.h"

#include "app/values.h"
#include "base/err.h"
#include "winnow_method.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Sizes ---- */

bool cli_chat_size(wnw_size *size, const char *text)
{
    int64_t whole;
    double ratio;
    *size = (wnw_size){.kind = WNW_SIZE_NONE};
    if (strchr(text, '.') || strcmp(text, "0") == 0) {
        if (!app_parse_real(&ratio, text) || !(ratio >= 0 && ratio < 1))
            return false;
        *size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = ratio};
        return true;
    }
    if (app_parse_int(&whole, text)) {
        if (whole < 1 || whole > INT32_MAX)
            return false;
        *size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = whole};
        return true;
    }
    if (!app_parse_bytes(&whole, text) || whole < 1 || whole > (int64_t)1 << 62)
        return false;
    *size = (wnw_size){.kind = WNW_SIZE_BYTES, .bytes = (uint64_t)whole};
    return true;
}

/* Sets the option that names the size, and clears all size options if there is no size. */
static void set_size(struct app_args *a, const wnw_size *size)
{
    a->budget = size->kind == WNW_SIZE_BUDGET ? size->budget : APP_UNSET;
    a->ratio = size->kind == WNW_SIZE_RATIO ? size->ratio : NAN;
    a->kv_bytes = size->kind == WNW_SIZE_BYTES ? (int64_t)size->bytes : APP_UNSET;
    a->keep_quality = NAN;
}

/* Takes a text over, where it was made. */
static int own(char **target, char *text)
{
    if (!text)
        return app_fail(APP_FAILED, "out of memory");
    free(*target);
    *target = text;
    return APP_OK;
}

/* ---- Rules of a file ---- */

/* When a file's rules compress, as --evict says it. */
static char *when_of(const wnw_stored_info *info)
{
    char *text = NULL;
    if (info->phase != WNW_PHASE_CHUNK || info->chunk == 0)
        return strdup(wnw_phase_name(info->phase));
    return asprintf(&text, "chunk:%d", (int)info->chunk) > 0 ? text : NULL;
}

int cli_chat_take_rules(struct cli_chat *c)
{
    wnw_stored_info info = wnw_stored_info_default();
    struct app_args *a = &c->args.app;
    c->own_rules = a->policy || app_keep_size_option(a);
    (void)wnw_stored_get_info(c->st, &info); /* this call does not fail for an open file */
    if (info.policy && !app_keep_size_option(a) &&
        !(cli_chat_wants_endless(c) && info.size.kind == WNW_SIZE_RATIO))
        set_size(a, &info.size);
    if (a->policy)
        return APP_OK;
    int rc = own(&c->policy, strdup(info.policy ? info.policy : "full"));
    if (rc == APP_OK && info.policy)
        rc = own(&c->evict, when_of(&info));
    a->policy = c->policy;
    a->evict = c->evict ? c->evict : a->evict;
    return rc;
}

/* ---- Contexts without an end ---- */

/* StreamingLLM's first and last entries, and what scores keep between them. */
static const char endless_policy[] = "snapkv+rerotate";

bool cli_chat_wants_endless(const struct cli_chat *c)
{
    return c->args.chat_context && strcmp(c->args.chat_context, "endless") == 0;
}

/* The recipe with kept tokens renumbered. *recipe is released with free. */
static int rerotating(char **recipe, const char *policy)
{
    wnw_policy *p = NULL;
    char *text = NULL;
    *recipe = NULL;
    int status = wnw_policy_parse(&p, policy, NULL);
    if (status == WNW_OK)
        status = wnw_policy_short(p, &text);
    if (status == WNW_OK && asprintf(recipe, "%s%s", text, wnw_policy_rerotates(p) ? "" : "+rerotate") < 0)
        *recipe = NULL;
    wnw_policy_free(p);
    wnw_free(text);
    if (status != WNW_OK)
        return app_fail_status(status);
    return *recipe ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int check_endless(const struct app_args *a)
{
    if (!isnan(a->ratio) || !isnan(a->keep_quality))
        return app_fail(APP_BAD_INPUT,
                        "a share of a conversation without an end has no end either; with --context endless "
                        "give a number of entries or bytes");
    if (a->policy && strcmp(a->policy, "full") == 0)
        return app_fail(APP_BAD_INPUT,
                        "the policy full keeps everything, and a context without an end cannot; leave it out "
                        "or name another");
    return APP_OK;
}

int cli_chat_endless_policy(char **recipe, const struct app_args *a)
{
    const bool named = a->policy && strcmp(a->policy, "auto") != 0;
    *recipe = NULL;
    WNW_TRY(check_endless(a));
    return rerotating(recipe, named ? a->policy : endless_policy);
}

/* Sizes, chunks and steps that fit into the context together: what stays, the tokens of a turn and of an answer that come
 * before the next compression, and a chunk. */
static int set_endless(const struct cli_chat *c, struct app_keep *keep)
{
    const int32_t chunk = 512 < c->n_ctx / 8 ? 512 : c->n_ctx / 8;
    const int64_t most = c->n_ctx - chunk - 4 * (int64_t)c->step;
    if (keep->size_assumed || keep->size.kind == WNW_SIZE_NONE)
        keep->size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = c->n_ctx / 2};
    keep->size_assumed = false;
    if (keep->size.kind == WNW_SIZE_BUDGET && keep->size.budget > most)
        return app_fail(
            APP_BAD_INPUT,
            "%lld entries leave no room in a context of %d; with --context endless at most %lld can "
            "stay",
            (long long)keep->size.budget, (int)c->n_ctx, (long long)most);
    keep->run.phase = WNW_PHASE_CHUNK;
    keep->run.chunk = keep->run.chunk > 0 && keep->run.chunk < chunk ? keep->run.chunk : chunk;
    keep->run.every = keep->run.every > 0 && keep->run.every < c->step ? keep->run.every : c->step;
    return app_keep_allowed(keep->policy, &keep->run, "chunk");
}

int cli_chat_context(struct cli_chat *c)
{
    int64_t n = c->job.info.n_ctx_train;
    const bool endless = cli_chat_wants_endless(c);
    if (c->args.chat_context && !endless &&
        (!app_parse_int(&n, c->args.chat_context) || n < 64 || n > c->job.info.n_ctx_train))
        return app_fail(APP_BAD_INPUT,
                        "--context '%.40s': give endless, or a number of tokens, 64 to %d for this model",
                        c->args.chat_context, c->job.info.n_ctx_train);
    c->n_ctx = (int32_t)n;
    c->step = CHAT_STEP < c->n_ctx / 16 ? CHAT_STEP : c->n_ctx / 16;
    c->endless = endless || app_keep_is_endless(&c->job.keep);
    return endless ? set_endless(c, &c->job.keep) : APP_OK;
}

/* ---- A change on the way ---- */

/* Checks and chooses what the arguments ask for now, and reads the profile for it. */
static int prepare(const struct cli_chat *c, struct app_job *next)
{
    WNW_TRY(app_keep_check(&next->keep, next->args));
    WNW_TRY(app_keep_check_blind(next->keep.policy));
    if (cli_chat_wants_endless(c))
        WNW_TRY(set_endless(c, &next->keep));
    return app_job_prepare(next);
}

/* Puts what `next` has prepared in place of what the job has. */
static void take(struct app_keep *keep, const struct app_keep *next)
{
    app_keep_clear(keep);
    *keep = *next;
    keep->run.more = &keep->more;
}

/* Sets the policy of the session. If there is no session, or it is older than the turns, the next one gets it when it is made. */
static int set_policy(struct cli_chat *c, const struct app_keep *next)
{
    wnw_run run = next->run;
    wnw_run_more more = next->more;
    if (!c->job.session || c->stale)
        return APP_OK;
    more.goes_on = true;
    run.more = &more;
    run.prompt = cli_chat_prompt(c);
    return app_status_code(wnw_session_begin(c->job.session, &run));
}

/* The arguments with another recipe or size; *policy is the recipe where it is a new one, owned by the caller. */
static int change_args(struct app_args *a, char **policy, const struct cli_chat *c, const char *recipe,
                       const wnw_size *size)
{
    char *turning;
    *a = c->args.app;
    *policy = NULL;
    if (size)
        set_size(a, size);
    if (recipe) {
        WNW_TRY(own(policy, strdup(recipe)));
        a->policy = *policy;
    }
    if (!cli_chat_wants_endless(c))
        return APP_OK;
    WNW_TRY(cli_chat_endless_policy(&turning, a));
    a->policy = turning;
    return own(policy, turning);
}

int cli_chat_change(struct cli_chat *c, const char *recipe, const wnw_size *size)
{
    struct app_args a;
    if (c->devices.sequence)
        return app_fail(APP_BAD_INPUT,
                        "on --devices policy and size stay as they were at the start; start again with "
                        "other options");
    struct app_job next = c->job;
    char *policy;
    next.args = &a;
    next.remarks = (struct app_text){0};
    next.is_prepared = false;
    next.kv.automatic = false; /* the cache is there */
    /* What gates on hidden states said is there only where the policy so far asked them. */
    next.keep =
        (struct app_keep){.run = wnw_run_default(),
                          .was_read = c->job.session && !c->stale &&
                                      (c->job.keep.was_read ||
                                       !(wnw_policy_needs(c->job.keep.policy).flags & WNW_NEED_INPUT_GATE))};
    int rc = change_args(&a, &policy, c, recipe, size);
    if (rc == APP_OK)
        rc = prepare(c, &next);
    if (rc == APP_OK)
        rc = set_policy(c, &next.keep);
    if (rc == APP_OK) {
        take(&c->job.keep, &next.keep);
        c->own_rules = true;
        c->args.app = a;
        rc = policy ? own(&c->policy, policy) : APP_OK;
        c->endless = cli_chat_wants_endless(c) || app_keep_is_endless(&c->job.keep);
        app_job_notes(&next);
    } else {
        app_keep_clear(&next.keep);
        free(policy);
    }
    free(next.remarks.s);
    return rc;
}
