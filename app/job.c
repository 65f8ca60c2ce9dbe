/* SPDX-License-Identifier: MIT */
#include "app/job.h"
#include "base/err.h"
#include "winnow_method.h"

#include "app/document.h"
#include "app/files.h"
#include "app/models.h"
#include "app/names.h"
#include "app/process.h"
#include "app/profiles.h"
#include "app/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int app_job_mask_form(wnw_mask_form *form, const char *word)
{
    *form = word && strcmp(word, "mean") == 0 ? WNW_MASK_MEAN : WNW_MASK_ZERO;
    return !word || *form == WNW_MASK_MEAN || strcmp(word, "zero") == 0
               ? APP_OK
               : app_fail(APP_BAD_INPUT, "--mask-form '%s' is unknown; use zero or mean", word);
}

static int check_masks(struct app_job *job)
{
    const char *phase = job->args->mask_phase;
    if (!phase || strcmp(phase, "all") == 0)
        job->mask_phase = WNW_MASK_ALL;
    else if (strcmp(phase, "decode") == 0)
        job->mask_phase = WNW_MASK_DECODE;
    else
        return app_fail(APP_BAD_INPUT, "--mask-phase '%s' is unknown; use all or decode", phase);
    if (phase && !job->args->mask_heads)
        return app_fail(APP_BAD_INPUT,
                        "--mask-phase says when heads are masked; name them with --mask-heads");
    if (job->args->mask_form && !job->args->mask_heads)
        return app_fail(APP_BAD_INPUT,
                        "--mask-form says what masked heads give; name them with --mask-heads");
    return app_job_mask_form(&job->mask_form, job->args->mask_form);
}

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

const char *app_job_when(const struct app_args *args)
{
    return args->evict ? args->evict : "end";
}

int app_job_rules(wnw_run *rules, const char *when, const char *every)
{
    int64_t n = 0;
    const int rc = check_phase(rules, when);
    if (rc != APP_OK || !every)
        return rc;
    const size_t len = strcspn(every, ":");
    if (!parse_count(&n, every, len) ||
        (every[len] == ':' && !parse_count(&rules->target, every + len + 1, strlen(every + len + 1))))
        return app_fail(
            APP_BAD_INPUT,
            "--evict-every '%s': give I or I:T, whole numbers, 1 to 2147483647: after every I generated "
            "tokens, T entries per layer and head stay",
            every);
    rules->every = (int32_t)n;
    return APP_OK;
}

static bool asks_quality(const struct app_args *args)
{
    return !isnan(args->keep_quality);
}

const char *app_job_size_option(const struct app_args *args)
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

static int check_size(struct app_job *job)
{
    const struct app_args *args = job->args;
    const bool budget = args->budget != APP_UNSET, ratio = !isnan(args->ratio),
               bytes = args->kv_bytes != APP_UNSET;
    if (budget + ratio + bytes + asks_quality(args) > 1)
        return app_fail(APP_BAD_INPUT,
                        "--budget, --ratio, --kv-bytes and --keep-quality exclude each other; give "
                        "one of them");
    if (budget)
        job->size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = args->budget};
    else if (ratio)
        job->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = args->ratio};
    else if (bytes)
        job->size = (wnw_size){.kind = WNW_SIZE_BYTES, .bytes = (uint64_t)args->kv_bytes};
    else
        job->size = (wnw_size){.kind = WNW_SIZE_NONE};
    return APP_OK;
}

int app_job_allowed(const wnw_policy *policy, const wnw_run *rules, const char *when)
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

static void assume_size(struct app_job *job)
{
    job->size_assumed = job->size.kind == WNW_SIZE_NONE;
    if (job->size_assumed)
        job->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5};
}

/* The recipe that is asked for: with --keep-quality the named one with the head budget that looks for it. */
static int find_recipe(struct app_job *job, const char **recipe)
{
    const struct app_args *args = job->args;
    const bool automatic = job->size.kind != WNW_SIZE_NONE || asks_quality(args);
    *recipe = args->policy ? args->policy : automatic ? "auto" : "full";
    if (!asks_quality(args) || app_is_auto(*recipe))
        return APP_OK;
    const int rc = app_keep_recipe(&job->keep_recipe, *recipe, args->keep_quality);
    *recipe = job->keep_recipe;
    return rc;
}

static int check_policy(struct app_job *job)
{
    const bool sized = job->size.kind != WNW_SIZE_NONE;
    const char *recipe;
    int rc = find_recipe(job, &recipe);
    if (rc == APP_OK)
        rc = app_auto_check(recipe);
    if (rc != APP_OK)
        return rc;
    job->automatic = app_is_auto(recipe);
    if (job->automatic) { /* every policy of the table needs a size, and works in every phase in which it is chosen */
        if (!asks_quality(job->args))
            assume_size(job);
        return APP_OK;
    }
    const int status = wnw_policy_parse(&job->policy, recipe, job->args->registry);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (wnw_policy_is_full(job->policy)) {
        job->size_ignored = sized;
        job->size.kind = WNW_SIZE_NONE;
    } else if (!wnw_policy_has_own_size(job->policy)) {
        assume_size(job);
    }
    return app_job_allowed(job->policy, &job->run, app_job_when(job->args));
}

/* --tokens goes with no option that makes a text. */
static int check_no_text(const struct app_args *args)
{
    if (args->documents.n > 0 || args->question)
        return app_fail(APP_BAD_INPUT, "--tokens is the whole prompt; leave out -f and -p");
    if (args->chat || args->system || args->special)
        return app_fail(APP_BAD_INPUT, "--tokens are fed as they are; leave out %s",
                        args->chat     ? "--chat"
                        : args->system ? "--system"
                                       : "--special");
    return APP_OK;
}

/* Options that say how texts are laid out. */
static int check_template(const struct app_args *args)
{
    if (args->raw && args->chat)
        return app_fail(APP_BAD_INPUT, "--raw and --chat exclude each other; give one of them");
    if (args->raw && args->system)
        return app_fail(APP_BAD_INPUT, "--raw has no place for a --system message; put it into the document");
    return APP_OK;
}

/* Options that make the text of a prompt. */
static int check_text(const struct app_args *args)
{
    const bool question = args->question && *args->question, document = args->documents.n > 0;
    const int rc = check_template(args);
    if (rc != APP_OK)
        return rc;
    if (!args->tokens && !document && !question)
        return app_fail(APP_BAD_INPUT, "no input; give a document with -f, a question with -p, or --tokens");
    if (args->context_only && !document && !args->tokens)
        return app_fail(APP_BAD_INPUT, "--context-only compresses a document; give one with -f");
    return APP_OK;
}

/* Reads documents, question and system message. */
static int read_texts(struct app_job *job)
{
    const struct app_args *args = job->args;
    int rc = app_argument_clean(&job->question, args->question, "the question (-p)", &job->remarks);
    if (rc == APP_OK)
        rc = app_argument_clean(&job->system, args->system, "the system message (--system)", &job->remarks);
    return rc == APP_OK
               ? app_documents_read(&job->document, &job->n_document, &args->documents, &job->remarks)
               : rc;
}

static int check_prompt(struct app_job *job)
{
    const struct app_args *args = job->args;
    int rc = args->tokens ? check_no_text(args) : APP_OK;
    if (rc == APP_OK)
        rc = check_text(args);
    if (rc == APP_OK && args->tokens)
        return app_read_tokens(&job->file_tokens, &job->n_file_tokens, args->tokens);
    return rc == APP_OK ? read_texts(job) : rc;
}

void app_job_date(struct app_job *job)
{
    const time_t now = time(NULL);
    struct tm tm;
    job->now = localtime_r(&now, &tm) ? (int64_t)now + tm.tm_gmtoff : (int64_t)now;
}

int app_job_attention(struct app_job *job)
{
    if (strcmp(job->args->attn, "own") == 0)
        job->attn = WNW_ATTN_OWN;
    else if (strcmp(job->args->attn, "ggml") == 0)
        job->attn = WNW_ATTN_GGML;
    else if (strcmp(job->args->attn, "f32") == 0)
        job->attn = WNW_ATTN_F32;
    else
        return app_fail(APP_BAD_INPUT, "--attn '%s' is unknown; use own, f32 or ggml", job->args->attn);
    return APP_OK;
}

static int check_types(struct app_job *job)
{
    const int rc = app_job_attention(job);
    return rc == APP_OK ? app_kv_check(&job->kv, job->args, job->attn) : rc;
}

int app_job_check_keeping(struct app_job *job)
{
    int rc = app_job_rules(&job->run, app_job_when(job->args), job->args->evict_every);
    if (rc == APP_OK)
        rc = check_size(job);
    if (rc == APP_OK)
        rc = check_policy(job);
    return rc == APP_OK ? app_peak_check(job->args, &job->size, job->run.phase) : rc;
}

/* Finds the model, and notes which files are inputs. */
static int find_inputs(struct app_job *job)
{
    const struct app_args *args = job->args;
    const int rc = app_model_path(&job->model_path, args->model);
    for (int i = 0; i < args->documents.n; i++)
        app_inputs_add(&job->inputs, args->documents.s[i]);
    app_inputs_add(&job->inputs, args->tokens);
    app_inputs_add(&job->inputs, args->profile);
    app_inputs_add(&job->inputs, job->model_path);
    return rc;
}

int app_job_check(struct app_job *job, const struct app_args *args)
{
    int rc;
    *job = (struct app_job){.args = args, .run = wnw_run_default()};
    if ((rc = app_job_check_keeping(job)) != APP_OK || (rc = check_types(job)) != APP_OK ||
        (rc = check_masks(job)) != APP_OK || (rc = check_prompt(job)) != APP_OK ||
        (rc = find_inputs(job)) != APP_OK)
        return rc;
    return args->out ? app_out_check(args->out, &job->inputs) : APP_OK;
}

int app_job_check_conversation(struct app_job *job, const struct app_args *args)
{
    int rc;
    *job = (struct app_job){.args = args, .run = wnw_run_default(), .talks = true};
    if ((rc = app_job_check_keeping(job)) != APP_OK || (rc = app_job_check_blind(job->policy)) != APP_OK ||
        (rc = check_types(job)) != APP_OK || (rc = check_template(args)) != APP_OK ||
        (rc = read_texts(job)) != APP_OK)
        return rc;
    return find_inputs(job);
}

int app_job_check_input(struct app_job *job, const struct app_args *args)
{
    *job = (struct app_job){.args = args, .any_length = true};
    const int rc = check_prompt(job);
    return rc != APP_OK ? rc : app_model_path(&job->model_path, args->model);
}

int app_job_open(struct app_job *job)
{
    const double start = app_now_ms();
    const int status = app_model_open(&job->model, job->model_path, NULL, &job->remarks);
    if (status != WNW_OK)
        return app_fail_status(status);
    job->load_ms = app_now_ms() - start;
    job->info = wnw_model_info_default();
    const int known = wnw_model_get_info(job->model, &job->info);
    return known == WNW_OK ? APP_OK : app_fail_status(known);
}

bool app_job_is_endless(const struct app_job *job)
{
    return job->run.phase == WNW_PHASE_CHUNK &&
           (job->policy ? wnw_policy_rerotates(job->policy) && !wnw_policy_is_full(job->policy)
                        : job->automatic);
}

static int check_tokens(const struct app_job *job)
{
    for (int32_t i = 0; i < job->n_tokens; i++) {
        if (job->tokens[i] < 0 || job->tokens[i] >= job->info.n_vocab)
            return app_fail(APP_BAD_INPUT, "'%s': token %d (number %d) is not in the vocabulary, 0 to %d",
                            job->args->tokens, job->tokens[i], i + 1, job->info.n_vocab - 1);
    }
    return APP_OK;
}

static int too_long(const struct app_job *job, const char *what)
{
    return app_fail(APP_BAD_INPUT,
                    "%s and the model's context is %d; shorten the prompt, use another model, or %s", what,
                    job->info.n_ctx_train,
                    job->talks ? "--context endless" : "--policy streaming_llm-rerotated --evict chunk");
}

/* A document that is certainly too long is refused before it is turned into tokens. */
static int check_length(const struct app_job *job)
{
    char what[96];
    if (!job->document || app_job_is_endless(job) ||
        !wnw_text_exceeds(job->model, job->document, job->n_document, job->info.n_ctx_train, NULL))
        return APP_OK;
    snprintf(what, sizeof what, "the document of %zu bytes has more than %d tokens", job->n_document,
             job->info.n_ctx_train);
    return too_long(job, what);
}

int app_job_prompt(struct app_job *job)
{
    const struct app_args *args = job->args;
    if (job->file_tokens) {
        job->tokens = job->file_tokens;
        job->n_tokens = job->n_context = job->n_file_tokens;
        const int rc = check_tokens(job);
        if (rc != APP_OK)
            return rc;
    } else {
        int rc = job->any_length ? APP_OK : check_length(job);
        if (rc != APP_OK)
            return rc;
        const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = job->document,
                                          .question = job->question,   .system = job->system,
                                          .chat = args->chat,          .raw = args->raw,
                                          .special = args->special,    .now = job->now};
        wnw_set_log(app_note_warning, &job->remarks);
        const int status = wnw_prompt_build(&job->prompt, job->model, &params);
        wnw_set_log(NULL, NULL);
        if (status != WNW_OK)
            return app_fail_status(status);
        job->tokens = wnw_prompt_tokens(job->prompt, &job->n_tokens);
        job->n_context = wnw_prompt_n_context(job->prompt);
    }
    if (job->n_tokens < 1)
        return app_fail(APP_BAD_INPUT, "the prompt has no tokens; give some text");
    if (job->n_tokens > job->info.n_ctx_train && !job->any_length && !app_job_is_endless(job)) {
        char what[64];
        snprintf(what, sizeof what, "the prompt has %d tokens", job->n_tokens);
        return too_long(job, what);
    }
    return APP_OK;
}

/* The size as a number of entries per layer and KV head. */
static double size_in_entries(const struct app_job *job)
{
    const wnw_model_info *info = &job->info;
    const double row = (double)wnw_kv_entry_bytes(job->kv.type, info->n_embd_head) * info->n_head_kv *
                       (info->n_layer - info->n_layer_swa);
    switch (job->size.kind) {
    case WNW_SIZE_BUDGET:
        return (double)job->size.budget;
    case WNW_SIZE_RATIO:
        return (1 - job->size.ratio) * app_job_n_compressed(job);
    case WNW_SIZE_BYTES:
        return row > 0 ? (double)job->size.bytes / row : 0;
    case WNW_SIZE_NONE:
        break;
    }
    return 0;
}

static int load_profile(struct app_job *job)
{
    wnw_needs needs = wnw_policy_needs(job->policy);
    if (job->automatic && !(job->no_profiles && !asks_quality(job->args))) { /* what is found decides */
        needs.flags |= WNW_NEED_PROFILE;
        needs.profiles = asks_quality(job->args) ? 1u << WNW_PROFILE_QUALITY : 0;
        needs.profiles_optional = asks_quality(job->args) ? APP_KEEP_PROFILES : APP_AUTO_PROFILES;
    }
    const bool wants = needs.flags & WNW_NEED_PROFILE;
    const uint32_t for_masks = wnw_heads_profiles(job->args->mask_heads);
    const bool policy_lacks = !for_masks || (wants && needs.profiles & for_masks);
    char user[96], *own = NULL; /* a stored document has its recipe without an argument */
    snprintf(user, sizeof user, "%s %.60s", policy_lacks ? "policy" : "--mask-heads",
             !policy_lacks       ? job->args->mask_heads
             : job->args->policy ? job->args->policy
             : job->automatic    ? asks_quality(job->args) ? "for --keep-quality" : "auto"
             : job->policy       ? app_policy_text(job->policy, &own)
                                 : "full");
    wnw_free(own);
    return app_profile_load(&job->profile, &job->remarks, job->model,
                            &(struct app_profile_want){.given = job->args->profile,
                                                       .model = job->args->model,
                                                       .model_path = job->model_path,
                                                       .required = (wants ? needs.profiles : 0) | for_masks,
                                                       .optional = wants ? needs.profiles_optional : 0,
                                                       .budget = size_in_entries(job),
                                                       .user = user,
                                                       .inputs = &job->inputs});
}

/* Whether a policy scores the document by the question. */
static bool is_aware(const wnw_policy *policy)
{
    const wnw_needs needs = policy ? wnw_policy_needs(policy) : (wnw_needs){0};
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

int app_job_check_blind(const wnw_policy *policy)
{
    if (!is_aware(policy))
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "the policy judges a document by its question, which is not known when the document is "
                    "compressed; use another, such as kvcompose or kvzip");
}

/* A policy that scores the document by the question takes the question from the prompt's second piece. */
static int check_question(const struct app_job *job)
{
    if (!is_aware(job->policy))
        return APP_OK;
    if (job->n_tokens == job->n_context || !job->question || !*job->question)
        return app_fail(APP_BAD_INPUT, "the policy judges the prompt by its question; give one with -p");
    return APP_OK;
}

/* Returns a status of the library. */
static int mask_heads(struct app_job *job)
{
    wnw_head *heads;
    int32_t n;
    int status = wnw_heads_parse(&heads, &n, job->args->mask_heads, job->model, job->profile);
    if (status == WNW_OK)
        status = wnw_session_mask_form(job->session, job->mask_form);
    if (status == WNW_OK)
        status = wnw_session_mask_heads(job->session, heads, n, job->mask_phase);
    wnw_free(heads);
    return status;
}

/* Chooses the scorer with which less stays for the quality that is asked for. */
static int choose_keeping(struct app_job *job, const wnw_policy_facts *facts)
{
    const double q = job->args->keep_quality;
    job->choice = wnw_policy_choice_default();
    int status = wnw_policy_choose_quality(&job->choice, facts, job->profile, q);
    const int rc = status == WNW_OK ? app_keep_recipe(&job->keep_recipe, job->choice.recipe, q)
                                    : app_fail_status(status);
    if (rc != APP_OK)
        return rc;
    job->choice.recipe = job->keep_recipe;
    status = wnw_policy_parse(&job->policy, job->keep_recipe, NULL);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

/* The share of the entries that is to stay; 0 = not known, because nothing is there yet. */
static double share_kept(const struct app_job *job)
{
    const int32_t n = app_job_n_compressed(job);
    if (n < 1)
        return job->size.kind == WNW_SIZE_RATIO ? 1 - job->size.ratio : 0;
    const double kept = size_in_entries(job) / n;
    return kept < 1 ? kept : 1;
}

/* Whether `auto` may read in chunks by itself. */
static bool may_chunk(const struct app_job *job)
{
    return job->reads_once && !job->args->evict && job->args->kv_peak <= 0 && !asks_quality(job->args) &&
           !job->no_profiles;
}

/* Chooses the policy from the other fields of job->run, and chunks with it. */
static int choose_policy(struct app_job *job)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    const int status = wnw_policy_facts_of(&facts, job->model, &job->run);
    if (status != WNW_OK)
        return app_fail_status(status);
    facts.kept = share_kept(job);
    facts.feeds_again = facts.feeds_again && !job->on_devices;
    facts.n_tokens = app_job_n_compressed(job);
    facts.was_read = job->was_read;
    job->own_chunk = may_chunk(job) ? wnw_policy_chunk(&facts) : 0;
    if (job->own_chunk > 0) {
        job->run.phase = facts.phase = WNW_PHASE_CHUNK;
        job->run.chunk = job->own_chunk;
    }
    const int rc = asks_quality(job->args) ? choose_keeping(job, &facts)
                                           : app_auto_choose(&job->policy, &job->choice, &facts);
    return rc == APP_OK ? app_job_allowed(job->policy, &job->run, app_job_when(job->args)) : rc;
}

/* Whether the policy looks at numbers that the cache keeps with entries. They go with rules that are over. */
static bool needs_numbers(const wnw_policy *policy)
{
    return policy && wnw_policy_needs(policy).flags & WNW_NEED_NUMBERS;
}

/* Refuses a size that an entry of every head does not fit into, before anything is read. */
static int check_least(const struct app_job *job)
{
    const wnw_model_info *info = &job->info;
    const int32_t n_layer = info->n_layer - info->n_layer_swa;
    if (job->size.kind != WNW_SIZE_BYTES || !job->policy || wnw_policy_is_full(job->policy) || n_layer < 1)
        return APP_OK;
    const uint64_t least = wnw_kv_bytes(job->kv.type, info->n_embd_head, info->n_head_kv, n_layer, 1);
    return job->size.bytes >= least
               ? APP_OK
               : app_fail(APP_BAD_INPUT,
                          "--kv-bytes %llu is too small: a block of entries in each of %d layers takes %llu "
                          "bytes; allow "
                          "at least that",
                          (unsigned long long)job->size.bytes, n_layer, (unsigned long long)least);
}

int app_job_prepare(struct app_job *job)
{
    if (job->is_prepared)
        return APP_OK;
    if (job->kv.automatic)
        app_kv_choose(&job->kv, (uint64_t)job->args->kv_bytes, app_job_n_compressed(job), &job->info);
    int rc = app_peak_choose(&job->peak, &job->run,
                             &(struct app_peak_of){.args = job->args,
                                                   .policy = job->policy,
                                                   .kv = &job->kv,
                                                   .info = &job->info,
                                                   .n = app_job_n_compressed(job),
                                                   .n_kept = size_in_entries(job)});
    rc = rc == APP_OK ? load_profile(job) : rc;
    job->run.size = job->size;
    job->run.profile = job->profile;
    job->run.prompt = job->prompt;
    job->more = wnw_run_more_default();
    job->more.question_later = job->args->context_only;
    job->more.chunk_slack =
        job->run.phase == WNW_PHASE_CHUNK && job->args->chunk_slack > 0 ? job->args->chunk_slack : 0;
    job->run.more = &job->more;
    if (rc == APP_OK && job->automatic)
        rc = choose_policy(job);
    if (rc == APP_OK)
        rc = check_least(job);
    job->run.policy = job->policy;
    job->more.once = !job->talks && !(job->stores && needs_numbers(job->policy));
    job->is_prepared = rc == APP_OK;
    return rc;
}

int app_job_session(struct app_job *job)
{
    const int rc = app_job_prepare(job);
    if (rc != APP_OK)
        return rc;
    wnw_session_params params = wnw_session_default_params();
    params.kv_type = job->kv.type;
    params.kv_tail = job->kv.tail;
    params.kv_unrotated = job->kv.unrotated;
    params.attn = job->attn;
    params.n_threads = job->args->threads == APP_UNSET ? 0 : (int32_t)job->args->threads;
    params.progress = app_progress_step;
    params.progress_user = &job->progress;
    int status = wnw_session_new(&job->session, job->model, &params);
    if (status == WNW_OK)
        status = wnw_session_begin(job->session, &job->run);
    if (status == WNW_OK && job->args->mask_heads)
        status = mask_heads(job);
    return status == WNW_OK ? check_question(job) : app_fail_status(status);
}

int app_job_read(struct app_job *job, int32_t from, int32_t to, wnw_logits_fn on_logits, void *user)
{
    if (to <= from)
        return APP_OK;
    const double start = app_now_ms();
    app_progress_start(&job->progress, "prefill", "tokens");
    const int status = wnw_session_prefill(job->session, job->tokens + from, to - from, on_logits, user);
    app_progress_end(&job->progress);
    job->prefill_ms += app_now_ms() - start;
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

void app_job_measure(struct app_job *job)
{
    wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
    int64_t entries = 0, heads = 0;
    for (int32_t il = 0; il < job->info.n_layer; il++) {
        for (int32_t ih = 0; ih < job->info.n_head_kv && !wnw_model_layer_is_swa(job->model, il); ih++) {
            entries += wnw_cache_n(job->session, il, ih);
            heads++;
        }
    }
    (void)wnw_cache_get_stats(job->session, &stats); /* this call does not fail for an open session */
    job->kept_mean = heads > 0 ? (double)entries / (double)heads : 0.0;
    job->kv_bytes = stats.bytes;
    job->kv_bytes_swa = stats.bytes_swa;
    job->kv_bytes_full = stats.bytes_full;
}

/* Fails if the cache takes more bytes than were asked for. Heads grow in blocks, memory grows in pages, and a policy may
 * always keep some entries, so there is a smallest size. Layers with a sliding window are not counted: no policy acts on them. */
static int check_bytes(const struct app_job *job)
{
    const uint64_t has = job->kv_bytes - job->kv_bytes_swa;
    if (job->size.kind != WNW_SIZE_BYTES || has <= job->size.bytes || !job->policy ||
        wnw_policy_is_full(job->policy))
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "--kv-bytes %llu is too small: what the policy leaves of %d tokens takes %llu "
                    "bytes, in blocks of "
                    "entries and in pages; allow at least that, or name another policy",
                    (unsigned long long)job->size.bytes, app_job_n_compressed(job), (unsigned long long)has);
}

int app_job_read_on(struct app_job *job, int32_t from, int32_t to)
{
    wnw_report report = {WNW_INIT(wnw_report)};
    if (to > from) {
        app_progress_start(&job->progress, "prefill", "tokens");
        const int status = wnw_session_read(job->session, job->tokens + from, to - from, &report);
        app_progress_end(&job->progress);
        if (status != WNW_OK)
            return app_fail_status(status);
        job->compress_ms = report.observe_ms + report.score_ms + report.select_ms + report.compact_ms;
        job->prefill_ms += report.read_ms;
        job->kv_bytes_peak = report.kv_bytes_before;
        if (*report.warning)
            app_note("warning: %s", report.warning);
    }
    app_job_measure(job);
    return to > from ? check_bytes(job) : APP_OK;
}

int app_job_read_first(struct app_job *job, int32_t n)
{
    return app_job_read_on(job, 0, n);
}

int32_t app_job_n_compressed(const struct app_job *job)
{
    return job->args->context_only ? job->n_context : job->n_tokens;
}

/* Whether a policy was chosen among those that do without the profile that helps most (docs/research/auto.md). */
static bool lacks_shares(const struct app_job *job)
{
    return job->automatic && job->choice.recipe && !asks_quality(job->args) && !job->no_profiles &&
           !(wnw_profile_kinds(job->profile) & 1u << WNW_PROFILE_SHARES);
}

void app_job_notes(const struct app_job *job)
{
    if (job->size_assumed)
        app_note("no size given, removing half of the entries (--ratio 0.5)");
    if (job->automatic && job->choice.recipe)
        app_auto_tell(&job->choice);
    if (lacks_shares(job))
        app_note("this model has no profile of shares, without which more answers are lost: "
                 "`winnow calibrate shares -m %.120s` makes one, in minutes for small models",
                 job->args->model);
    if (job->kv.automatic)
        app_kv_tell(&job->kv, (uint64_t)job->args->kv_bytes, app_job_n_compressed(job), &job->info);
    app_peak_tell(&job->peak, job->args, job->kv_bytes_peak - job->kv_bytes_swa);
    if (job->own_chunk > 0)
        app_note("read in chunks of %d tokens, because the prompt is long: %.2f MiB were used of %.2f; "
                 "--evict end reads it whole",
                 job->own_chunk, (double)(job->kv_bytes_peak - job->kv_bytes_swa) / 1048576.0,
                 (double)job->kv_bytes_full / 1048576.0);
    if (job->size_ignored)
        app_note("the policy keeps everything, the given size has no effect");
    app_note_lines("warning: ", job->remarks.s);
}

json_t *app_job_chunks(const struct app_job *job)
{
    if ((job->args->kv_peak <= 0 && !(job->args->chunk_slack > 0) && job->own_chunk == 0) ||
        job->run.phase != WNW_PHASE_CHUNK || !job->policy || wnw_policy_is_full(job->policy))
        return NULL;
    return json_pack("{s:o, s:f, s:I}", "chunk",
                     job->run.chunk > 0 ? json_integer(job->run.chunk) : json_null(), "slack",
                     job->more.chunk_slack > 1 ? job->more.chunk_slack : 1.0, "kv_peak_bytes",
                     (json_int_t)job->kv_bytes_peak);
}

json_t *app_job_choice(const struct app_job *job)
{
    return job->automatic && job->choice.recipe ? app_auto_json(&job->choice) : NULL;
}

void app_job_end_session(struct app_job *job)
{
    wnw_session_free(job->session);
    wnw_engine_free(job->engine);
    job->session = NULL;
    job->engine = NULL;
}

void app_job_close(struct app_job *job)
{
    app_job_end_session(job);
    wnw_profile_free(job->profile);
    free(job->keep_recipe);
    free(job->remarks.s);
    wnw_prompt_free(job->prompt);
    wnw_model_free(job->model);
    wnw_policy_free(job->policy);
    free(job->file_tokens);
    free(job->document);
    free(job->question);
    free(job->system);
    free(job->model_path);
    *job = (struct app_job){0};
}

int app_job_start(struct app_job *job, const struct app_args *args)
{
    WNW_TRY(app_job_check(job, args));
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    return app_job_session(job);
}
