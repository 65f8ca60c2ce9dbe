/* SPDX-License-Identifier: MIT */
/* winnow eval --out: all samples of a run under all configs, and the report of the answers. */
#include "eval/run/run_tasks.h"

#include "app/console.h"
#include "app/json.h"
#include "app/profiles.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/stats.h"
#include "eval/run/devices.h"
#include "eval/run/manifest.h"
#include "eval/run/reading_store.h"
#include "eval/run/record.h"
#include "eval/run/runner.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The state of a run of tasks, in addition to that of all runs. */
struct tasks {
    const struct eval_run_report *report;
    struct eval_chat raw; /* for sets that no template goes around */
    bool *wanted, *now;   /* [configs.n] of the current sample, and of the current reading; owned */
    bool *said;           /* [configs.n] that the config is left out; owned */
    bool too_long;        /* the current sample */
    const struct eval_reading *reading; /* of the current sample */
    int64_t n_too_long, n_unmade;
    int64_t n_answer_tokens;                 /* generated, and read for questions */
    struct eval_readings readings, separate; /* done, and what every config by itself would need */
};

static struct tasks *tasks_of(const struct eval_run *run)
{
    return run->user;
}

/* ---- Opening ---- */

/* Refuses options that exclude each other. */
static int check_options(const struct eval_args *a, const struct eval_configs *c)
{
    const bool requests = strcmp(a->turns, "multi_request") == 0;
    if (requests && a->own_history)
        return app_fail(APP_BAD_INPUT, "--turns multi_request has no history; leave out --own-history");
    if (requests && eval_recompresses(a))
        return app_fail(APP_BAD_INPUT,
                        "--turns multi_request has no history to compress; leave out --recompress");
    if (a->closed_book && a->policies)
        return app_fail(APP_BAD_INPUT, "--closed-book asks the full cache alone; leave out --policies");
    for (int32_t i = 0; a->text && i < c->n_masks; i++)
        if (c->masks[i].text && c->masks[i].phase == WNW_MASK_DECODE)
            return app_fail(APP_BAD_INPUT,
                            "--mask-phase decode masks nothing of --text, which is read and not "
                            "generated");
    for (int32_t i = 0; requests && i < c->n; i++)
        if (c->items[i].mode == EVAL_AWARE || c->items[i].mode == EVAL_AWARE_FULL)
            return app_fail(APP_BAD_INPUT,
                            "--turns multi_request asks every question of one compressed context; "
                            "mode %s compresses a question too",
                            eval_mode_name(c->items[i].mode));
    return APP_OK;
}

/* Finds the masked heads, with the calibration results that name them. */
static int open_masks(struct eval_run *run, struct app_profile_want want, struct app_text *notes)
{
    wnw_profile *p = NULL;
    int rc = APP_OK;
    for (int32_t i = 1; i < run->configs.n_masks; i++)
        want.required |= wnw_heads_profiles(run->configs.masks[i].text);
    want.user = "--mask-heads";
    if (want.required)
        rc = app_profile_load(&p, notes, run->setup.model, &want);
    if (rc == APP_OK)
        rc = eval_masks_open(&run->configs, run->setup.model, p);
    wnw_profile_free(p);
    return rc;
}

/* Finds the calibration results of config i, or those of an earlier one. CompilerKV's tables depend on the size, so that every
 * config has its own. */
static int load_profile(struct eval_run *run, struct app_profile_want want, struct app_text *notes, int32_t i)
{
    struct eval_config *c = &run->configs.items[i];
    const wnw_needs needs = wnw_policy_needs(c->policy);
    char user[160];
    if (!(needs.flags & WNW_NEED_PROFILE))
        return APP_OK;
    for (int32_t k = 0; k < i && !c->profile; k++)
        if (run->configs.items[k].policy == c->policy &&
            strcmp(run->configs.items[k].size_text, c->size_text) == 0)
            c->profile = run->configs.items[k].profile;
    if (c->profile)
        return APP_OK;
    const int32_t n = run->setup.items.n > 0 ? run->setup.items.items[0].n_target : 0;
    snprintf(user, sizeof user, "policy %s", c->recipe);
    want.user = user;
    want.required = needs.profiles;
    want.optional = needs.profiles_optional;
    want.budget = 0;
    if (c->size.kind == WNW_SIZE_BUDGET)
        want.budget = (double)c->size.budget;
    else if (c->size.kind == WNW_SIZE_RATIO)
        want.budget = (1 - c->size.ratio) * n;
    const int rc = app_profile_load(&c->profile, notes, run->setup.model, &want);
    c->owns_profile = c->profile != NULL;
    return rc;
}

static int load_profiles(struct eval_run *run)
{
    struct app_inputs inputs = {0};
    struct app_text notes = {0};
    const struct app_profile_want want = {.given = run->args->app.profile,
                                          .model = run->args->app.model,
                                          .model_path = run->setup.model_path,
                                          .inputs = &inputs};
    int rc = open_masks(run, want, &notes);
    for (int32_t i = 0; rc == APP_OK && i < run->configs.n; i++)
        rc = load_profile(run, want, &notes, i);
    if (rc == APP_OK)
        app_note_lines("warning: ", notes.s);
    free(notes.s);
    return rc;
}

static bool has_length(const struct eval_items *items, int32_t n_target)
{
    bool has = n_target == 0; /* all lengths together */
    for (int32_t i = 0; i < items->n && !has; i++)
        has = items->items[i].n_target == n_target;
    return has;
}

/* Warns, before the run takes hours, of contrasts that it does not cover: a name in them may differ from that in the options. */
static void warn_open_contrasts(const json_t *contrasts, const struct eval_configs *c,
                                const struct eval_items *items)
{
    for (size_t i = 0; i < json_array_size(contrasts); i++) {
        struct eval_contrast x;
        const char *line = json_string_value(json_array_get(contrasts, i));
        if (eval_contrast_read(&x, line, "contrasts") == APP_OK &&
            !(eval_contrast_is_compared(c, &x) && has_length(items, x.n_target)))
            app_note("warning: this run does not compare '%s', which stays open: no such policies, mode, "
                     "size, type or length are in its lists",
                     line);
        eval_contrast_clear(&x);
    }
}

static int open_folder(struct eval_run *run)
{
    json_t *contrasts, *remarks = NULL,
                       *description = eval_manifest_make(&run->setup, &run->configs, &run->runtime);
    int rc = eval_contrasts_open(&contrasts, run->args, run->suite);
    warn_open_contrasts(contrasts, &run->configs, &run->setup.items);
    if (rc == APP_OK)
        rc = eval_manifest_remarks(&remarks, run->args, run->suite, &run->configs, run->runtime.info.n_head);
    if (rc != APP_OK) {
        json_decref(contrasts);
        json_decref(remarks);
        json_decref(description);
        return rc;
    }
    if (remarks)
        app_json_set(&description, "remarks", remarks);
    if (contrasts)
        app_json_set(&description, "contrasts", contrasts);
    if (run->args->app.devices) /* numbers of other devices round differently */
        app_json_set(&description, "devices", app_json_text(run->args->app.devices));
    if (run->pace.measured) /* how fast the machine was when the run began */
        app_json_set(&description, "calibration",
                     json_pack("{s:f, s:f}", "token_ms", run->pace.token_ms, "step_ms", run->pace.step_ms));
    return eval_run_open_folder(run, description);
}

static int open_all(struct eval_run *run)
{
    struct tasks *x = tasks_of(run);
    const struct eval_args *args = run->args;
    WNW_TRY(eval_shard_read(&run->shard, args->shard));
    WNW_TRY(
        eval_configs_open(&run->configs, args, run->suite)); /* before the model, which takes time to open */
    WNW_TRY(x->report->check(args, &run->configs));
    WNW_TRY(eval_check_words(args));
    WNW_TRY(check_options(args, &run->configs));
    WNW_TRY(eval_reading_store_check(args, &run->configs));
    WNW_TRY(eval_devices_check(args, &run->configs));
    WNW_TRY(eval_setup_open(&run->setup, args, run->suite));
    WNW_TRY(load_profiles(run));
    WNW_TRY(eval_setup_fit(&run->setup));
    WNW_TRY(eval_chat_open(&x->raw, run->setup.model, "none"));
    WNW_TRY(eval_runtime_open(&run->runtime, &run->setup.tokenizer, args, run->suite));
    WNW_TRY(eval_devices_open(&run->runtime.devices, &run->setup, &run->configs));
    WNW_TRY(eval_pace_open(&run->pace, &run->runtime, &run->configs, &run->setup, run->shard.n));
    WNW_TRY(open_folder(run));
    x->wanted = calloc((size_t)run->configs.n, sizeof *x->wanted);
    x->now = calloc((size_t)run->configs.n, sizeof *x->now);
    x->said = calloc((size_t)run->configs.n, sizeof *x->said);
    return x->wanted && x->now && x->said ? APP_OK : eval_no_memory("the configurations");
}

/* ---- Samples ---- */

/* Writes that an entry is left out, and says so once for its config. */
static int write_left_out(struct eval_run *run, const struct eval_entry *e)
{
    struct tasks *x = tasks_of(run);
    bool *said = &x->said[e->config - run->configs.items];
    json_t *record = eval_record_left_out(x->reading, e);
    const int rc = record ? eval_run_add(run, record) : eval_no_memory("a result");
    json_decref(record);
    if (!*said)
        app_note("%s with %s is left out where it cannot be: %s", e->config->recipe, e->config->size_text,
                 e->left_out);
    *said = true;
    run->progress.config++;
    return rc;
}

/* Writes the records of an entry. That of the first turn comes last: where it is there, all are. */
static int write_records(struct eval_entry *e, void *user)
{
    struct eval_run *run = user;
    struct tasks *x = tasks_of(run);
    int rc = APP_OK;
    if (e->left_out)
        return write_left_out(run, e);
    for (int32_t t = e->n_turns - 1; rc == APP_OK && t >= 0; t--) {
        char key[EVAL_MAX_KEY];
        json_t *record = NULL;
        double score = 0;
        eval_record_key(key, x->reading->sample, e->config->id, t);
        if (eval_journal_has(&run->journal, key))
            continue;
        rc = eval_record_make(&record, &score, x->reading, e, t);
        if (rc == APP_OK)
            rc = eval_run_add(run, record);
        json_decref(record);
        x->separate.n += t == 0;
        x->separate.ms += t == 0 ? e->prefill_ms : 0;
        eval_progress_score(&run->progress, e->config->full, score);
        x->n_answer_tokens += e->answer[t].n_question + e->answer[t].n;
    }
    run->progress.n_tokens = x->n_answer_tokens + x->readings.n_tokens;
    run->progress.config++;
    eval_progress_show(&run->progress, x->reading->sample->task, x->reading->sample->n_target);
    return rc;
}

/* The mean score of a sample's questions under a config; NaN if it has not been answered. */
static double score_of(const struct eval_run *run, const struct eval_sample *s, const char *config)
{
    double sum = 0;
    int32_t n = 0;
    for (;; n++) {
        char key[EVAL_MAX_KEY];
        eval_record_key(key, s, config, n);
        const double score = eval_journal_score(&run->journal, key);
        if (isnan(score))
            return n > 0 ? sum / n : NAN;
        sum += score;
    }
}

/* Whether the probes of an item that have been answered say what all of them will. A shard does not know those of others. */
static bool probes_decided(const struct eval_run *run, const struct eval_item *item)
{
    bool decided = run->shard.n == 1;
    for (int32_t i = 0; decided && i < run->configs.n; i++) {
        double sum = 0;
        int32_t n_done = 0;
        if (run->configs.items[i].reference != i)
            continue;
        for (int32_t k = 0; k < item->n_probes; k++) {
            const struct eval_sample probe = {.task = item->task->name,
                                              .n_target = item->n_target,
                                              .index =
                                                  eval_shard_index(item, run->setup.items.depths.n, true, k),
                                              .seed = run->setup.source.seed};
            const double score = score_of(run, &probe, run->configs.items[i].id);
            sum += isnan(score) ? 0 : score;
            n_done += !isnan(score);
        }
        decided = eval_gate_decided(sum, n_done, item->n_probes);
    }
    return decided;
}

/* Finds out which configs lack a sample; probes are for the full cache that others are compared with. Returns
 * whether any does. */
static bool find_wanted(struct eval_run *run, const struct eval_sample *s)
{
    bool *wanted = tasks_of(run)->wanted;
    int32_t n = 0;
    for (int32_t i = 0; i < run->configs.n; i++) {
        char key[EVAL_MAX_KEY];
        eval_record_key(key, s, run->configs.items[i].id, 0);
        wanted[i] = (s->index < EVAL_GATE_FIRST || run->configs.items[i].reference == i) &&
                    !eval_journal_has(&run->journal, key);
        n += wanted[i];
    }
    run->progress.n_configs = n;
    run->progress.config = 0;
    return n > 0;
}

/* Whether the beginning of an answer is put into the user's turn, as LongBench does. kvpress compresses the context only and puts it
 * after the template's tail. */
static bool prefix_in_turn(const struct eval_args *args, const struct eval_task *task, enum eval_mode mode)
{
    return eval_task_is_of(task, "longbench") &&
           (strcmp(args->lb_prefix, "auto") == 0 ? mode == EVAL_AWARE_FULL
                                                 : strcmp(args->lb_prefix, "user") == 0);
}

/* Prints where the beginning of answers to LongBench is put, because that changes the answers. */
static void note_prefix(const struct eval_run *run)
{
    bool in_turn[2] = {false, false};
    for (int32_t k = 0; k < run->setup.items.n; k++) {
        const struct eval_task *task = run->setup.items.items[k].task;
        for (int32_t i = 0; eval_task_is_of(task, "longbench") && i < run->configs.n; i++)
            in_turn[prefix_in_turn(run->args, task, run->configs.items[i].mode)] = true;
    }
    const char *where = "in the user's turn in mode aware_full, after the template's tail in others";
    if (!in_turn[1])
        where = "after the template's tail";
    else if (!in_turn[0])
        where = "in the user's turn";
    if ((in_turn[0] || in_turn[1]) && !run->setup.chat.raw && !run->args->quiet)
        app_note("LongBench: answers begin %s (--lb-prefix)", where);
}

/* The caller closes r in any case. */
static int open_reading(struct eval_reading *r, struct eval_run *run, const struct eval_item *item,
                        const struct eval_sample *s, const struct eval_chat *chat)
{
    const int32_t *ids;
    int32_t n;
    if (!(item->task->flags & EVAL_IS_TEXT))
        return eval_reading_open(r, &run->runtime, chat, s);
    eval_setup_piece(&ids, &n, &run->setup, item, s->index);
    return eval_reading_text(r, chat, s, ids, n, run->setup.tokenizer.bos);
}

/* Answers what was read for the configs in x->now, unless the model's context is too short. */
static int answer_reading(struct eval_run *run, const struct eval_reading *r)
{
    struct tasks *x = tasks_of(run);
    const struct eval_wanted wanted = {.configs = &run->configs,
                                       .config = x->now,
                                       .done = write_records,
                                       .user = run,
                                       .readings = &x->readings};
    struct eval_reference reference = {0};
    x->too_long = r->n_need > run->runtime.info.n_ctx_train;
    int rc = eval_reference_open(&reference, r->n_turns);
    x->reading = r;
    if (rc == APP_OK && !x->too_long)
        rc = eval_read_entries(&run->runtime, r, &wanted, &reference);
    x->reading = NULL;
    eval_reference_close(&reference);
    return rc;
}

/* Reads a sample with `chat` around it and answers it for the configs in x->now. */
static int run_reading(struct eval_run *run, const struct eval_item *item, const struct eval_sample *s,
                       const struct eval_chat *chat)
{
    struct eval_reading reading;
    int rc = open_reading(&reading, run, item, s, chat);
    if (rc == APP_OK)
        rc = answer_reading(run, &reading);
    eval_reading_close(&reading);
    return rc;
}

/* Reads a sample once, or twice where modes differ in the place of the answer's beginning. */
static int run_sample(struct eval_run *run, const struct eval_item *item, const struct eval_sample *s)
{
    struct tasks *x = tasks_of(run);
    /* Its meta may say that it has no chat template. */
    const bool raw = item->task->flags & EVAL_IS_TEXT || json_is_false(json_object_get(s->meta, "chat"));
    struct eval_chat chat = raw ? x->raw : run->setup.chat;
    int rc = APP_OK;
    x->too_long = false;
    for (int in_turn = 0; rc == APP_OK && !x->too_long && in_turn <= !chat.raw; in_turn++) {
        bool any = false;
        for (int32_t i = 0; i < run->configs.n; i++) {
            x->now[i] = x->wanted[i] && (chat.raw || prefix_in_turn(run->args, item->task,
                                                                    run->configs.items[i].mode) == in_turn);
            any = any || x->now[i];
        }
        chat.prefix_first = in_turn;
        rc = any ? run_reading(run, item, s, &chat) : APP_OK;
    }
    x->n_too_long += x->too_long;
    return rc;
}

/* Makes the sample with this identity, and answers it. */
static int make_and_run(struct eval_run *run, struct eval_item *item, const struct eval_sample *identity)
{
    struct eval_sample s;
    bool more;
    int rc = eval_setup_sample(&s, &more, &run->setup, item, identity->index);
    if (run->args->closed_book) {
        s.context.len = 0;
        s.n_spans = 0;
    }
    if (rc == APP_OK && s.unmade)
        tasks_of(run)->n_unmade++;
    else if (rc == APP_OK && item->task->flags & EVAL_IS_TEXT)
        rc = run_sample(run, item, identity);
    else if (rc == APP_OK && more)
        rc = run_sample(run, item, &s);
    eval_sample_clear(&s);
    return rc;
}

static int visit(struct eval_run *run, bool *ran, struct eval_item *item, int32_t index)
{
    /* The identity of a sample, from which its keys follow. */
    const struct eval_sample identity = {.task = item->task->name,
                                         .n_target = item->n_target,
                                         .index = index,
                                         .seed = eval_item_is_made(item) ? run->setup.source.seed : 0};
    const bool fits = eval_item_fits(item, run->runtime.info.n_ctx_train);
    *ran = fits && !(index >= EVAL_GATE_FIRST && probes_decided(run, item)) && find_wanted(run, &identity);
    tasks_of(run)->n_too_long += !fits;
    if (!*ran)
        return APP_OK;
    eval_progress_show(&run->progress, identity.task, identity.n_target);
    return make_and_run(run, item, &identity);
}

/* ---- The end ---- */

static int check(const struct eval_run *run)
{
    const struct tasks *x = tasks_of(run);
    const int32_t n_all = run->progress.n_all;
    if (x->n_too_long > 0 && x->n_too_long == n_all)
        return app_fail(APP_BAD_INPUT,
                        "every sample is longer than the model's context of %d tokens; give "
                        "shorter --lengths, or shorter contexts in files",
                        (int)run->runtime.info.n_ctx_train);
    if (x->n_unmade > 0 && x->n_unmade + x->n_too_long == n_all)
        return app_fail(APP_BAD_INPUT,
                        "every sample was left out: " EVAL_WHY_UNMADE "; name another --haystack");
    if (x->n_too_long > 0)
        app_note("%lld samples were left out: they are longer than the model's context of %d tokens",
                 (long long)x->n_too_long, (int)run->runtime.info.n_ctx_train);
    if (x->n_unmade > 0)
        app_note("%lld samples were left out: " EVAL_WHY_UNMADE, (long long)x->n_unmade);
    return APP_OK;
}

/* Whether the folder has a record that is not a probe's. */
static bool has_samples(const struct eval_journal *j)
{
    const char *key;
    json_t *value;
    json_object_foreach(j->keys, key, value) if (eval_record_is_sample(key)) return true;
    return false;
}

/* Writes and prints the summary of the folder. */
static int finish(struct eval_run *run)
{
    const struct tasks *x = tasks_of(run);
    if (!run->args->quiet && x->separate.n > x->readings.n)
        app_note("%lld readings took %.1f s; each config by itself would need %lld, %.1f s more",
                 (long long)x->readings.n, 1e-3 * x->readings.ms, (long long)x->separate.n,
                 1e-3 * (x->separate.ms - x->readings.ms));
    if (run->args->store)
        app_note("%lld tokens of contexts were read, %lld came from the store",
                 (long long)x->readings.n_tokens, (long long)x->readings.n_kept);
    WNW_TRY(eval_manifest_left_out(run->args->app.out, x->n_too_long, x->n_unmade));
    if (has_samples(&run->journal))
        return x->report->write(run->args);
    app_note("'%s' has only answers to probes, which no method is measured on; there is no report yet",
             run->args->app.out);
    return APP_OK;
}

int eval_run_tasks(const struct eval_args *args, const struct eval_suite *suite,
                   const struct eval_run_report *report)
{
    static const struct eval_run_kind kind = {
        .records = "results", .visit = visit, .check = check, .finish = finish};
    struct tasks x = {.report = report};
    struct eval_run run = {.args = args, .suite = suite, .user = &x};
    int rc = open_all(&run);
    if (rc == APP_OK) {
        app_note_lines("", run.configs.notes.s);
        note_prefix(&run);
        rc = eval_run_all(&run, &kind, &run.setup.items);
    }
    free(x.wanted);
    free(x.now);
    free(x.said);
    eval_chat_close(&x.raw);
    eval_run_close(&run);
    return rc;
}
