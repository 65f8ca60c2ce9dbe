/* SPDX-License-Identifier: MIT */
#include "app/keep.h"

#include "app/automatic.h"
#include "app/console.h"
#include "app/names.h"
#include "app/profiles.h"
#include "app/values.h"
#include "base/err.h"
#include "winnow_method.h"
#include "winnow_study.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses text[len] as a whole number from 1 to 2147483647; nothing may follow the number. */
static bool parse_count(int64_t *out, const char *text, size_t len)
{
    char digits[16];
    if (len == 0 || len >= sizeof digits)
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    return app_parse_int(out, digits) && *out >= 1 && *out <= INT32_MAX;
}

static int check_phase(wnw_run *rules, const char *when)
{
    int64_t n = 0;
    if (strcmp(when, "end") == 0)
        rules->phase = WNW_PHASE_END;
    else if (strcmp(when, "layer") == 0)
        rules->phase = WNW_PHASE_LAYER;
    else if (strncmp(when, "chunk", 5) == 0 && (when[5] == '\0' || when[5] == ':'))
        rules->phase = WNW_PHASE_CHUNK;
    else
        return app_fail(APP_BAD_INPUT, "--evict '%s' is unknown; use end, layer, chunk or chunk:C", when);
    if (rules->phase == WNW_PHASE_CHUNK && when[5] == ':') {
        if (!parse_count(&n, when + 6, strlen(when + 6)))
            return app_fail(APP_BAD_INPUT,
                            "--evict '%s': chunk:C takes C tokens at a time, a whole number, 1 to 2147483647",
                            when);
        rules->chunk = (int32_t)n;
    }
    return APP_OK;
}

const char *app_keep_when(const struct app_args *args)
{
    return args->evict ? args->evict : "end";
}

/* Reads what follows I in --evict-every I:T, I:R or I:R:all. */
static bool parse_left(wnw_run *rules, const char *text)
{
    static const char all[] = ":all";
    char number[32];
    const size_t len = strlen(text), tail = sizeof all - 1;
    if (parse_count(&rules->target, text, len))
        return true;
    rules->target = 0;
    rules->every_ratio_read = len > tail && strcmp(text + len - tail, all) == 0;
    const size_t digits = rules->every_ratio_read ? len - tail : len;
    if (digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    return app_parse_real(&rules->every_ratio, number) && rules->every_ratio > 0 && rules->every_ratio < 1;
}

int app_keep_rules(wnw_run *rules, const char *when, const char *every)
{
    int64_t n = 0;
    const int rc = check_phase(rules, when);
    if (rc != APP_OK || !every)
        return rc;
    const size_t len = strcspn(every, ":");
    if (!parse_count(&n, every, len) || (every[len] == ':' && !parse_left(rules, every + len + 1)))
        return app_fail(
            APP_BAD_INPUT,
            "--evict-every '%s': give I or I:T, whole numbers, 1 to 2147483647: after every I generated "
            "tokens, T entries per layer and head stay; or I:R, 0 < R < 1: R of the entries there goes; or "
            "I:R:all: R of all tokens read is gone",
            every);
    rules->every = (int32_t)n;
    return APP_OK;
}

static bool asks_quality(const struct app_args *args)
{
    return !isnan(args->keep_quality);
}

const char *app_keep_size_option(const struct app_args *args)
{
    if (args->budget != APP_UNSET)
        return "--budget";
    if (!isnan(args->ratio))
        return "--ratio";
    if (args->kv_bytes != APP_UNSET)
        return "--kv-bytes";
    if (!isnan(args->keep_quality))
        return "--keep-quality";
    return NULL;
}

static int check_size(struct app_keep *keep, const struct app_args *args)
{
    const bool budget = args->budget != APP_UNSET, ratio = !isnan(args->ratio),
               bytes = args->kv_bytes != APP_UNSET;
    if (budget + ratio + bytes + asks_quality(args) > 1)
        return app_fail(APP_BAD_INPUT,
                        "--budget, --ratio, --kv-bytes and --keep-quality exclude each other; give "
                        "one of them");
    if (budget)
        keep->size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = args->budget};
    else if (ratio)
        keep->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = args->ratio};
    else if (bytes)
        keep->size = (wnw_size){.kind = WNW_SIZE_BYTES, .bytes = (uint64_t)args->kv_bytes};
    else
        keep->size = (wnw_size){.kind = WNW_SIZE_NONE};
    return APP_OK;
}

int app_keep_allowed(const wnw_policy *policy, const wnw_run *rules, const char *when)
{
    const char *reason;
    if (!wnw_policy_allows(policy, rules->phase, &reason))
        return app_fail(APP_BAD_INPUT, "--evict %s does not go with this policy: %s%s", when, reason,
                        rules->phase == WNW_PHASE_CHUNK
                            ? "; use --evict end, or keydiff, which reads in chunks with any size"
                            : "");
    if (rules->every > 0 && !wnw_policy_allows(policy, WNW_PHASE_DECODE, &reason))
        return app_fail(APP_BAD_INPUT, "--evict-every does not go with this policy: %s", reason);
    return APP_OK;
}

static void assume_size(struct app_keep *keep)
{
    keep->size_assumed = keep->size.kind == WNW_SIZE_NONE;
    if (keep->size_assumed)
        keep->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5};
}

/* The recipe that is asked for: with --keep-quality the named one with the head budget that looks for it. */
static int find_recipe(struct app_keep *keep, const struct app_args *args, const char **recipe)
{
    const bool automatic = keep->size.kind != WNW_SIZE_NONE || asks_quality(args);
    *recipe = automatic ? "auto" : "full";
    if (args->policy)
        *recipe = args->policy;
    if (!asks_quality(args) || app_is_auto(*recipe))
        return APP_OK;
    const int rc = app_keep_recipe(&keep->recipe, *recipe, args->keep_quality);
    *recipe = keep->recipe;
    return rc;
}

static int check_policy(struct app_keep *keep, const struct app_args *args)
{
    const bool sized = keep->size.kind != WNW_SIZE_NONE;
    const char *recipe;
    WNW_TRY(find_recipe(keep, args, &recipe));
    WNW_TRY(app_auto_check(recipe));
    keep->automatic = app_is_auto(recipe);
    if (keep->automatic) { /* every policy of the table needs a size, and works in every phase in which it is chosen */
        if (!asks_quality(args))
            assume_size(keep);
        return APP_OK;
    }
    const int status = wnw_policy_parse(&keep->policy, recipe, args->registry);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (wnw_policy_is_full(keep->policy)) {
        keep->size_ignored = sized;
        keep->size.kind = WNW_SIZE_NONE;
    } else if (!wnw_policy_has_own_size(keep->policy)) {
        assume_size(keep);
    }
    return app_keep_allowed(keep->policy, &keep->run, app_keep_when(args));
}

int app_keep_check(struct app_keep *keep, const struct app_args *args)
{
    WNW_TRY(app_keep_rules(&keep->run, app_keep_when(args), args->evict_every));
    WNW_TRY(check_size(keep, args));
    WNW_TRY(check_policy(keep, args));
    if (args->kv_peak > 0 && args->policy && keep->policy && wnw_policy_is_full(keep->policy))
        return app_fail(
            APP_BAD_INPUT,
            "--kv-peak: the policy %s keeps everything, so that its cache has no bound; give another "
            "--policy, such as auto",
            args->policy);
    return app_peak_check(args, &keep->size, keep->run.phase);
}

bool app_keep_by_question(const wnw_policy *policy)
{
    const wnw_needs needs = policy ? wnw_policy_needs(policy) : (wnw_needs){0};
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

int app_keep_check_blind(const wnw_policy *policy)
{
    if (!app_keep_by_question(policy))
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "the policy judges a document by its question, which is not known when the document is "
        "compressed; use another, such as kvcompose or kvzip, or name questions with --expect where "
        "the command has it");
}

bool app_keep_is_endless(const struct app_keep *keep)
{
    return keep->run.phase == WNW_PHASE_CHUNK &&
           (keep->policy ? wnw_policy_rerotates(keep->policy) && !wnw_policy_is_full(keep->policy)
                         : keep->automatic);
}

/* The size as a number of entries per layer and KV head. */
static double size_in_entries(const struct app_keep *keep, const struct app_keep_of *of)
{
    const wnw_model_info *info = of->info;
    const double row = (double)wnw_kv_entry_bytes(of->kv->type, info->n_embd_head) * info->n_head_kv *
                       (info->n_layer - info->n_layer_swa);
    switch (keep->size.kind) {
    case WNW_SIZE_BUDGET:
        return (double)keep->size.budget;
    case WNW_SIZE_RATIO:
        return (1 - keep->size.ratio) * of->n;
    case WNW_SIZE_BYTES:
        return row > 0 ? (double)keep->size.bytes / row : 0;
    case WNW_SIZE_NONE:
        break;
    }
    return 0;
}

/* What messages call the policy. *own is released with wnw_free. */
static const char *name_of(const struct app_keep *keep, const struct app_args *args, char **own)
{
    *own = NULL;
    if (args->policy)
        return args->policy;
    if (keep->automatic)
        return asks_quality(args) ? "for --keep-quality" : "auto";
    return keep->policy ? app_policy_text(keep->policy, own) : "full"; /* a stored document has its recipe */
}

static int load_profile(struct app_keep *keep, struct app_text *remarks, const struct app_keep_of *of)
{
    wnw_needs needs = wnw_policy_needs(keep->policy);
    if (keep->automatic && !(of->no_profiles && !asks_quality(of->args))) { /* what is found decides */
        needs.flags |= WNW_NEED_PROFILE;
        needs.profiles = asks_quality(of->args) ? 1u << WNW_PROFILE_QUALITY : 0;
        needs.profiles_optional = asks_quality(of->args) ? APP_KEEP_PROFILES : APP_AUTO_PROFILES;
    }
    const bool wants = needs.flags & WNW_NEED_PROFILE;
    const uint32_t for_masks = wnw_heads_profiles(of->args->mask_heads);
    const bool policy_lacks = !for_masks || (wants && needs.profiles & for_masks);
    char user[96], *own = NULL;
    snprintf(user, sizeof user, "%s %.60s", policy_lacks ? "policy" : "--mask-heads",
             policy_lacks ? name_of(keep, of->args, &own) : of->args->mask_heads);
    wnw_free(own);
    return app_profile_load(&keep->profile, remarks, of->model,
                            &(struct app_profile_want){.given = of->args->profile,
                                                       .model = of->args->model,
                                                       .model_path = of->model_path,
                                                       .required = (wants ? needs.profiles : 0) | for_masks,
                                                       .optional = wants ? needs.profiles_optional : 0,
                                                       .budget = size_in_entries(keep, of),
                                                       .user = user,
                                                       .inputs = of->inputs});
}

/* Chooses the scorer with which less stays for the quality that is asked for. */
static int choose_keeping(struct app_keep *keep, const struct app_args *args, const wnw_policy_facts *facts)
{
    const double q = args->keep_quality;
    keep->choice = wnw_policy_choice_default();
    int status = wnw_policy_choose_quality(&keep->choice, facts, keep->profile, q);
    if (status != WNW_OK)
        return app_fail_status(status);
    WNW_TRY(app_keep_recipe(&keep->recipe, keep->choice.recipe, q));
    keep->choice.recipe = keep->recipe;
    status = wnw_policy_parse(&keep->policy, keep->recipe, NULL);
    return app_status_code(status);
}

/* The share of the entries that is to stay; 0 = not known, because nothing is there yet. */
static double share_kept(const struct app_keep *keep, const struct app_keep_of *of)
{
    const int32_t n = of->n;
    if (n < 1)
        return keep->size.kind == WNW_SIZE_RATIO ? 1 - keep->size.ratio : 0;
    const double kept = size_in_entries(keep, of) / n;
    return kept < 1 ? kept : 1;
}

/* Whether `auto` may read in chunks by itself. */
static bool may_chunk(const struct app_keep_of *of)
{
    return of->reads_once && !of->args->evict && of->args->kv_peak <= 0 && !asks_quality(of->args) &&
           !of->no_profiles;
}

/* Chooses the policy from the other fields of keep->run, and chunks with it. */
static int choose_policy(struct app_keep *keep, const struct app_keep_of *of)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    const int status = wnw_policy_facts_of(&facts, of->model, &keep->run);
    if (status != WNW_OK)
        return app_fail_status(status);
    facts.kept = share_kept(keep, of);
    facts.feeds_again = facts.feeds_again && !of->on_devices;
    facts.n_tokens = of->n;
    facts.was_read = keep->was_read;
    keep->own_chunk = may_chunk(of) ? wnw_policy_chunk(&facts) : 0;
    if (keep->own_chunk > 0) {
        keep->run.phase = facts.phase = WNW_PHASE_CHUNK;
        keep->run.chunk = keep->own_chunk;
    }
    if (asks_quality(of->args))
        WNW_TRY(choose_keeping(keep, of->args, &facts));
    else
        WNW_TRY(app_auto_choose(&keep->policy, &keep->choice, &facts));
    return app_keep_allowed(keep->policy, &keep->run, app_keep_when(of->args));
}

/* Whether the policy looks at numbers that the cache keeps with entries. They go with rules that are over. */
static bool needs_numbers(const wnw_policy *policy)
{
    return policy && wnw_policy_needs(policy).flags & WNW_NEED_NUMBERS;
}

/* Refuses a size that an entry of every head does not fit into, before anything is read. */
static int check_least(const struct app_keep *keep, const struct app_keep_of *of)
{
    const wnw_model_info *info = of->info;
    const int32_t n_layer = info->n_layer - info->n_layer_swa;
    if (keep->size.kind != WNW_SIZE_BYTES || !keep->policy || wnw_policy_is_full(keep->policy) || n_layer < 1)
        return APP_OK;
    const uint64_t least = wnw_kv_bytes(of->kv->type, info->n_embd_head, info->n_head_kv, n_layer, 1);
    return keep->size.bytes >= least
               ? APP_OK
               : app_fail(APP_BAD_INPUT,
                          "--kv-bytes %llu is too small: a block of entries in each of %d layers takes %llu "
                          "bytes; allow "
                          "at least that",
                          (unsigned long long)keep->size.bytes, n_layer, (unsigned long long)least);
}

int app_keep_prepare(struct app_keep *keep, struct app_text *remarks, const struct app_keep_of *of)
{
    WNW_TRY(app_peak_choose(&keep->peak, &keep->run,
                            &(struct app_peak_of){.args = of->args,
                                                  .policy = keep->policy,
                                                  .kv = of->kv,
                                                  .info = of->info,
                                                  .n = of->n,
                                                  .n_kept = size_in_entries(keep, of),
                                                  .on_devices = of->on_devices}));
    WNW_TRY(load_profile(keep, remarks, of));
    keep->run.size = keep->size;
    keep->run.profile = keep->profile;
    keep->run.prompt = of->prompt;
    keep->more = wnw_run_more_default();
    keep->more.question_later = of->args->context_only;
    keep->more.n_tasks = of->n_expected;
    keep->more.task_tokens = of->expected;
    keep->more.n_task_tokens = of->n_expected_tokens;
    if (keep->run.phase == WNW_PHASE_CHUNK)
        keep->more.chunk_slack = keep->chunk_slack > 0 ? keep->chunk_slack : fmax(of->args->chunk_slack, 0);
    keep->run.more = &keep->more;
    if (keep->automatic)
        WNW_TRY(choose_policy(keep, of));
    WNW_TRY(check_least(keep, of));
    keep->run.policy = keep->policy;
    keep->more.once = !of->talks && !(of->stores && needs_numbers(keep->policy));
    return APP_OK;
}

bool app_keep_lacks_shares(const struct app_keep *keep, const struct app_args *args)
{
    return keep->automatic && keep->choice.recipe && !asks_quality(args) &&
           !(wnw_profile_kinds(keep->profile) & 1u << WNW_PROFILE_SHARES);
}

void app_keep_clear(struct app_keep *keep)
{
    wnw_policy_free(keep->policy);
    wnw_profile_free(keep->profile);
    free(keep->recipe);
    *keep = (struct app_keep){0};
}
