/* SPDX-License-Identifier: MIT */
/*
 * winnow eval --out: all samples of a run under all configs. Samples come in turn from all tasks, first sample 0
 * of each, then sample 1, so that a run that is interrupted has as much of one task as of another. What the
 * folder holds already is skipped.
 */
#include "eval/run/runner.h"

#include "app/console.h"
#include "app/json.h"
#include "app/profiles.h"
#include "app/stop.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/stats.h"
#include "eval/run/journal.h"
#include "eval/run/lists.h"
#include "eval/run/manifest.h"
#include "eval/run/pace.h"
#include "eval/run/progress.h"
#include "eval/run/record.h"
#include "eval/run/shard.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

struct runner {
    const struct eval_args *args;
    const struct eval_run_report *report;
    struct eval_setup setup;
    struct eval_configs configs;
    struct eval_runtime runtime;
    struct eval_journal journal;
    struct eval_progress progress;
    struct eval_pace pace;
    struct eval_chat raw; /* for sets that no template goes around */
    struct eval_shard shard;
    bool *wanted, *now; /* [configs.n] of the sample at hand, and of the reading at hand; owned */
    bool too_long;      /* the sample at hand */
    const struct eval_reading *reading; /* of the sample at hand */
    int64_t n_written, n_skipped, n_too_long, n_unmade;
    int64_t n_answer_tokens;              /* generated, and read for questions */
    struct eval_readings readings, alone; /* done, and what every config by itself would need */
};

/* ---- Opening ---- */

/* Refuses options that exclude each other. */
static int check_options(const struct runner *x)
{
    const struct eval_args *a = x->args;
    const bool requests = strcmp(a->turns, "multi_request") == 0;
    if (requests && a->own_history)
        return app_fail(APP_BAD_INPUT, "--turns multi_request has no history; leave out --own-history");
    if (requests && eval_recompresses(a))
        return app_fail(APP_BAD_INPUT,
                        "--turns multi_request has no history to compress; leave out --recompress");
    if (a->closed_book && a->policies)
        return app_fail(APP_BAD_INPUT, "--closed-book asks the full cache alone; leave out --policies");
    for (int32_t i = 0; a->text && i < x->configs.n_masks; i++)
        if (x->configs.masks[i].text && x->configs.masks[i].phase == WNW_MASK_DECODE)
            return app_fail(APP_BAD_INPUT,
                            "--mask-phase decode masks nothing of --text, which is read and not "
                            "generated");
    for (int32_t i = 0; requests && i < x->configs.n; i++)
        if (x->configs.at[i].mode == EVAL_AWARE || x->configs.at[i].mode == EVAL_AWARE_FULL)
            return app_fail(APP_BAD_INPUT,
                            "--turns multi_request asks every question of one compressed context; "
                            "mode %s compresses a question too",
                            eval_mode_name(x->configs.at[i].mode));
    return APP_OK;
}

/* Finds the masked heads, with the calibration results that name them. */
static int open_masks(struct runner *x, struct app_inputs *inputs, struct app_text *notes)
{
    uint32_t kinds = 0;
    wnw_profile *p = NULL;
    for (int32_t i = 1; i < x->configs.n_masks; i++)
        kinds |= wnw_heads_profiles(x->configs.masks[i].text);
    int rc = !kinds ? APP_OK
                    : app_profile_load(&p, notes, x->setup.model,
                                       &(struct app_profile_want){.given = x->args->app.profile,
                                                                  .model = x->args->app.model,
                                                                  .model_path = x->setup.model_path,
                                                                  .required = kinds,
                                                                  .user = "--mask-heads",
                                                                  .inputs = inputs});
    if (rc == APP_OK)
        rc = eval_masks_open(&x->configs, x->setup.model, p);
    wnw_profile_free(p);
    return rc;
}

/* Calibration results for the policies that use them. CompilerKV's tables depend on the size, so that every
 * config has its own. */
static int load_profiles(struct runner *x)
{
    int rc = APP_OK;
    struct app_inputs inputs = {0};
    struct app_text notes = {0};
    rc = open_masks(x, &inputs, &notes);
    for (int32_t i = 0; rc == APP_OK && i < x->configs.n; i++) {
        struct eval_config *c = &x->configs.at[i];
        const wnw_needs needs = wnw_policy_needs(c->policy);
        if (!(needs.flags & WNW_NEED_PROFILE))
            continue;
        for (int32_t k = 0; k < i && !c->profile; k++)
            if (x->configs.at[k].policy == c->policy && strcmp(x->configs.at[k].size_text, c->size_text) == 0)
                c->profile = x->configs.at[k].profile;
        if (c->profile)
            continue;
        char user[160];
        snprintf(user, sizeof user, "policy %s", c->recipe);
        const int32_t n = x->setup.n_items > 0 ? x->setup.items[0].n_target : 0;
        const struct app_profile_want want = {.given = x->args->app.profile,
                                              .model = x->args->app.model,
                                              .model_path = x->setup.model_path,
                                              .required = needs.profiles,
                                              .optional = needs.profiles_optional,
                                              .budget =
                                                  c->size.kind == WNW_SIZE_BUDGET  ? (double)c->size.budget
                                                  : c->size.kind == WNW_SIZE_RATIO ? (1 - c->size.ratio) * n
                                                                                   : 0,
                                              .user = user,
                                              .inputs = &inputs};
        rc = app_profile_load(&c->profile, &notes, x->setup.model, &want);
        c->owns_profile = c->profile != NULL;
    }
    if (rc == APP_OK)
        app_note_lines("warning: ", notes.s);
    free(notes.s);
    return rc;
}

static int open_folder(struct runner *x)
{
    json_t *run = eval_manifest_make(&x->setup, &x->configs, &x->runtime);
    if (x->pace.measured) /* how fast the machine was when the run began */
        app_json_set(&run, "calibration",
                     json_pack("{s:f, s:f}", "token_ms", x->pace.token_ms, "step_ms", x->pace.step_ms));
    return eval_manifest_open(&x->journal, x->args->app.out, run);
}

static int open_all(struct runner *x, const struct eval_suite *suite)
{
    int rc = eval_shard_read(&x->shard, x->args->shard);
    if (rc == APP_OK)
        rc = x->report->check(x->args);
    if (rc == APP_OK) /* before the model, which takes time to open */
        rc = eval_configs_open(&x->configs, x->args, suite);
    if (rc == APP_OK)
        rc = eval_check_words(x->args);
    if (rc == APP_OK)
        rc = check_options(x);
    if (rc == APP_OK)
        rc = eval_setup_open(&x->setup, x->args, suite);
    if (rc == APP_OK)
        rc = load_profiles(x);
    if (rc == APP_OK)
        rc = eval_setup_fit(&x->setup);
    if (rc == APP_OK)
        rc = eval_chat_open(&x->raw, x->setup.model, "none");
    if (rc == APP_OK)
        rc = eval_runtime_open(&x->runtime, &x->setup.tokenizer, x->args, suite);
    if (rc == APP_OK)
        rc = eval_pace_open(&x->pace, &x->runtime, &x->configs, &x->setup, x->shard.n);
    if (rc == APP_OK)
        rc = open_folder(x);
    if (rc != APP_OK)
        return rc;
    x->wanted = calloc((size_t)x->configs.n, sizeof *x->wanted);
    x->now = calloc((size_t)x->configs.n, sizeof *x->now);
    return !x->wanted || !x->now ? eval_no_memory("the configurations") : rc;
}

static void close_all(struct runner *x)
{
    free(x->wanted);
    free(x->now);
    eval_journal_close(&x->journal);
    eval_runtime_close(&x->runtime);
    eval_chat_close(&x->raw);
    eval_configs_close(&x->configs);
    eval_setup_close(&x->setup);
}

/* ---- Samples ---- */

/* Writes the records of an entry. That of the first turn comes last: where it is there, all are. */
static int write_records(struct eval_entry *e, void *user)
{
    struct runner *x = user;
    int rc = APP_OK;
    for (int32_t t = e->n_turns - 1; rc == APP_OK && t >= 0; t--) {
        char key[EVAL_MAX_KEY];
        json_t *row = NULL;
        double score = 0;
        eval_record_key(key, x->reading->sample, e->config->id, t);
        if (eval_journal_has(&x->journal, key))
            continue;
        rc = eval_record_make(&row, &score, x->reading, e, t);
        if (rc == APP_OK)
            rc = eval_journal_add(&x->journal, row);
        json_decref(row);
        x->alone.n += t == 0;
        x->alone.ms += t == 0 ? e->prefill_ms : 0;
        eval_progress_score(&x->progress, e->config->full, score);
        x->n_written += rc == APP_OK;
        x->n_answer_tokens += e->answer[t].n_question + e->answer[t].n;
    }
    x->progress.n_tokens = x->n_answer_tokens + x->readings.n_tokens;
    x->progress.config++;
    eval_progress_show(&x->progress, x->reading->sample->task, x->reading->sample->n_target);
    return rc;
}

/* Finds out which configs lack a sample; probes are for the full cache that others are compared with. Returns
 * whether any does. */
static bool find_wanted(struct runner *x, const struct eval_sample *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->configs.n; i++) {
        char key[EVAL_MAX_KEY];
        x->wanted[i] = false;
        if (s->index >= EVAL_GATE_FIRST && x->configs.at[i].reference != i)
            continue;
        eval_record_key(key, s, x->configs.at[i].id, 0);
        x->wanted[i] = !eval_journal_has(&x->journal, key);
        n += x->wanted[i];
    }
    x->progress.n_configs = n;
    x->progress.config = 0;
    return n > 0;
}

/* Whether the beginning of an answer stands in the user's turn: LongBench has it there, and kvpress, which compresses the context
 * alone, after the template's tail. */
static bool prefix_in_turn(const struct runner *x, const struct eval_item *item, enum eval_mode mode)
{
    const char *place = x->args->lb_prefix;
    if (!item->set || strcmp(item->set->group, "longbench") != 0)
        return false;
    return strcmp(place, "auto") == 0 ? mode == EVAL_AWARE_FULL : strcmp(place, "user") == 0;
}

/* Says where the beginning of answers to LongBench stands, which changes them. */
static void note_prefix(const struct runner *x)
{
    bool any = false, place[2] = {false, false};
    for (int32_t k = 0; k < x->setup.n_items; k++) {
        const struct eval_item *item = &x->setup.items[k];
        if (!item->set || strcmp(item->set->group, "longbench") != 0 || x->setup.chat.raw)
            continue;
        any = true;
        for (int32_t i = 0; i < x->configs.n; i++)
            place[prefix_in_turn(x, item, x->configs.at[i].mode)] = true;
    }
    if (any && !x->args->quiet)
        app_note("LongBench: answers begin %s (--lb-prefix)",
                 !place[1]   ? "after the template's tail"
                 : !place[0] ? "in the user's turn"
                             : "in the user's turn in mode aware_full, after the template's tail in others");
}

/* Reads a sample with `chat` around it and answers it for the configs in x->now. */
static int run_reading(struct runner *x, const struct eval_item *item, const struct eval_sample *s,
                       const struct eval_chat *chat)
{
    const struct eval_wanted wanted = {
        .configs = &x->configs, .config = x->now, .done = write_records, .user = x, .readings = &x->readings};
    struct eval_reading reading;
    struct eval_reference reference = {0};
    const int32_t *ids;
    int32_t n;
    int rc;
    if (item->text) {
        eval_setup_piece(&ids, &n, &x->setup, item, s->index);
        rc = eval_reading_text(&reading, chat, s, ids, n, x->setup.text_bos);
    } else {
        rc = eval_reading_open(&reading, &x->runtime, chat, s);
    }
    x->too_long = rc == APP_OK && reading.n_need > x->runtime.info.n_ctx_train;
    if (rc == APP_OK)
        rc = eval_reference_open(&reference, reading.n_turns);
    x->reading = &reading;
    if (rc == APP_OK && !x->too_long)
        rc = eval_read_entries(&x->runtime, &reading, &wanted, &reference);
    x->reading = NULL;
    eval_reference_close(&reference);
    eval_reading_close(&reading);
    return rc;
}

/* Reads a sample once, or twice where modes differ in the place of the answer's beginning. */
static int run_sample(struct runner *x, const struct eval_item *item, const struct eval_sample *s)
{
    /* Its meta may say that no chat stands around it. */
    const bool raw = item->text || json_is_false(json_object_get(s->meta, "chat"));
    struct eval_chat chat = raw ? x->raw : x->setup.chat;
    int rc = APP_OK;
    x->too_long = false;
    for (int in_turn = 0; rc == APP_OK && !x->too_long && in_turn <= !chat.raw; in_turn++) {
        bool any = false;
        for (int32_t i = 0; i < x->configs.n; i++) {
            x->now[i] =
                x->wanted[i] && (chat.raw || prefix_in_turn(x, item, x->configs.at[i].mode) == in_turn);
            any = any || x->now[i];
        }
        chat.prefix_first = in_turn;
        rc = any ? run_reading(x, item, s, &chat) : APP_OK;
    }
    x->n_too_long += x->too_long;
    return rc;
}

/* The identity of a sample, from which its keys follow. */
static struct eval_sample identity_of(const struct runner *x, const struct eval_item *item, int32_t index)
{
    return (struct eval_sample){.task = eval_item_name(item),
                                .n_target = item->n_target,
                                .index = index,
                                .seed = item->task ? x->setup.source.seed : 0};
}

static int run_index(void *user, struct eval_item *item, int32_t index)
{
    struct runner *x = user;
    const struct eval_sample identity = identity_of(x, item, index);
    struct eval_sample s = {0};
    bool more = true;
    int rc = APP_OK;
    if (app_stop_asked())
        return APP_INTERRUPTED;
    if (!eval_item_fits(item, x->runtime.info.n_ctx_train)) {
        x->n_too_long++;
    } else if (!find_wanted(x, &identity)) {
        x->n_skipped++;
    } else {
        eval_progress_show(&x->progress, identity.task, identity.n_target);
        rc = eval_setup_sample(&s, &more, &x->setup, item, index);
        if (x->args->closed_book) {
            s.context.len = 0;
            s.n_spans = 0;
        }
        if (rc == APP_OK && s.unmade)
            x->n_unmade++;
        else if (rc == APP_OK && (more || item->text))
            rc = run_sample(x, item, item->text ? &identity : &s);
        eval_sample_clear(&s);
        x->progress.n_ran++;
        x->progress.work_ran += eval_pace_cost(&x->pace, item, index);
    }
    x->progress.n_done++;
    x->progress.work_done += eval_pace_cost(&x->pace, item, index);
    return rc;
}

static int count_sample(void *user, struct eval_item *item, int32_t index)
{
    struct runner *x = user;
    x->progress.n_all++;
    x->progress.work_all += eval_pace_cost(&x->pace, item, index);
    return APP_OK;
}

/* ---- The end ---- */

/* Says what was done, and writes and prints the summary of the folder. */
static int finish(const struct runner *x, int rc)
{
    if (x->n_too_long > 0)
        app_note("%lld samples were left out: they are longer than the model's context of %d tokens",
                 (long long)x->n_too_long, (int)x->runtime.info.n_ctx_train);
    if (x->n_unmade > 0)
        app_note("%lld samples were left out: " EVAL_WHY_UNMADE, (long long)x->n_unmade);
    if (rc == APP_INTERRUPTED)
        app_note("interrupted; the same command goes on");
    if (!x->args->quiet)
        app_note("%zu results in %s, of which %lld are new", x->journal.n_keys, x->args->app.out,
                 (long long)x->n_written);
    if (!x->args->quiet && x->alone.n > x->readings.n)
        app_note("%lld readings took %.1f s; each config by itself would need %lld, %.1f s more",
                 (long long)x->readings.n, 1e-3 * x->readings.ms, (long long)x->alone.n,
                 1e-3 * (x->alone.ms - x->readings.ms));
    if (x->journal.n_keys == 0)
        return APP_OK;
    const int noted = eval_manifest_left_out(x->args->app.out, x->n_too_long, x->n_unmade);
    if (noted != APP_OK)
        return noted;
    if (!eval_journal_any(&x->journal, eval_record_is_sample)) {
        app_note("'%s' has only answers to probes, which no method is measured on; there is no report yet",
                 x->args->app.out);
        return APP_OK;
    }
    return x->report->write(x->args);
}

int eval_run_tasks(const struct eval_args *args, const struct eval_suite *suite,
                   const struct eval_run_report *report)
{
    struct runner x = {.args = args, .report = report};
    int rc = open_all(&x, suite);
    if (rc == APP_OK) {
        app_note_lines("", x.configs.notes.s);
        note_prefix(&x);
        app_stop_watch();
        (void)eval_shard_each(&x.shard, &x.setup, count_sample, &x);
        eval_progress_start(&x.progress, args->quiet);
        rc = eval_shard_each(&x.shard, &x.setup, run_index, &x);
        eval_progress_end(&x.progress);
        app_stop_unwatch();
        if (rc == APP_OK && x.n_too_long == x.progress.n_all && x.n_too_long > 0)
            rc = app_fail(APP_BAD_INPUT,
                          "every sample is longer than the model's context of %d tokens; give "
                          "shorter --lengths, or shorter contexts in files",
                          (int)x.runtime.info.n_ctx_train);
        if (rc == APP_OK && x.n_unmade > 0 && x.n_unmade + x.n_too_long == x.progress.n_all)
            rc = app_fail(APP_BAD_INPUT,
                          "every sample was left out: " EVAL_WHY_UNMADE "; name another --haystack");
        if (rc == APP_OK || rc == APP_INTERRUPTED) {
            const int reported = finish(&x, rc);
            rc = reported == APP_OK || rc == APP_INTERRUPTED ? rc : reported;
        }
    }
    close_all(&x);
    return rc;
}
