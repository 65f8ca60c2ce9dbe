/* SPDX-License-Identifier: MIT */
/* The perturbation study: its texts one by one into a folder, what is there already is skipped, and its forms. */
#include "eval/perturb/perturb_run.h"

#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/models.h"
#include "app/stop.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/base/jsonl.h"
#include "eval/perturb/perturb_forms.h"
#include "eval/perturb/perturb_record.h"
#include "eval/perturb/perturb_texts.h"
#include "eval/run/journal.h"
#include "eval/run/lists.h"
#include "eval/run/manifest.h"
#include "eval/run/progress.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS = 100, LEAST_TOKENS = 64, MAX_KEY_SIZE = 32 };

struct runner {
    const struct eval_args *args;
    struct eval_setup setup; /* what run.json describes; it has no items */
    struct eval_configs configs;
    struct eval_runtime runtime;
    struct eval_texts texts;
    struct eval_journal journal;
    struct eval_perturb_work work;
    struct eval_perturb numbers;
    int32_t n_texts, n_tokens, n_new;
};

/* ---- Opening ---- */

static bool is_used(const char *option)
{
    static const char *const used[] = {"model",    "study",    "lengths", "samples", "text",
                                       "seed",     "policies", "ratios",  "budgets", "kv-bytes",
                                       "kv-types", "evict",    "threads", "quiet",   "json"};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (strcmp(used[i], option) == 0)
            return true;
    return false;
}

/* Options of other runs would have no effect. */
static int check_options(const struct eval_args *a)
{
    const struct app_group *const groups[] = {&eval_group_tasks, &eval_group_config, &eval_group_run};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int i = 0; i < groups[g]->n; i++) {
            const struct app_option *o = &groups[g]->options[i];
            if (!is_used(o->name) && !app_option_is_default(&a->app, o))
                return app_fail(APP_BAD_INPUT, "--study perturbation asks no questions; leave out --%s",
                                o->name);
        }
    if (a->app.evict && strcmp(a->app.evict, "end") != 0)
        return app_fail(APP_BAD_INPUT,
                        "--study perturbation measures against the whole cache; leave out --evict");
    return APP_OK;
}

static int read_numbers(struct runner *x, const struct eval_suite *suite)
{
    const char *lengths = x->args->lengths ? x->args->lengths : suite->lengths;
    int64_t n = 0;
    if (!app_parse_int(&n, lengths) || n < LEAST_TOKENS || n > INT32_MAX - 1)
        return app_fail(APP_BAD_INPUT,
                        "--lengths '%s': --study perturbation takes one length of %d tokens or more", lengths,
                        LEAST_TOKENS);
    x->n_tokens = (int32_t)n;
    x->n_texts = x->args->samples == APP_UNSET ? TEXTS : (int32_t)x->args->samples;
    return APP_OK;
}

static int check_policies(struct runner *x)
{
    const struct eval_configs *c = &x->configs;
    x->work.config = c->at + 1; /* after the full cache */
    x->work.n_policies = c->n_recipes - 1;
    x->work.n_sizes = x->work.n_policies > 0 ? (c->n - 1) / x->work.n_policies : 0;
    if (x->work.n_policies < 2)
        return app_fail(APP_BAD_INPUT,
                        "--study perturbation compares policies with the first of them; give two or more");
    if (c->n != 1 + x->work.n_policies * x->work.n_sizes)
        return app_fail(APP_BAD_INPUT,
                        "--study perturbation measures one type of cache; give one --kv-types");
    if (c->n_groups > 1)
        return app_fail(APP_BAD_INPUT,
                        "--study perturbation reads each text once, and one reading cannot observe for all "
                        "of these policies; give fewer --policies");
    for (int32_t i = 1; i < c->n; i++)
        if (wnw_policy_needs(c->at[i].policy).profiles)
            return app_fail(APP_BAD_INPUT,
                            "--study perturbation has no calibration results for %s; leave it out",
                            c->at[i].recipe);
    return APP_OK;
}

static int open_model(struct runner *x)
{
    struct eval_setup *s = &x->setup;
    const wnw_model_params params = wnw_model_default_params();
    int rc = app_model_path(&s->model_path, x->args->app.model);
    const int status = rc == APP_OK ? app_model_open(&s->model, s->model_path, &params, NULL) : WNW_OK;
    if (status != WNW_OK)
        rc = app_fail_status(status);
    if (rc != APP_OK)
        return rc;
    s->args = x->args;
    s->tokenizer = eval_tokenizer_of(s->model);
    s->source.seed = (uint64_t)x->args->app.seed;
    rc = eval_chat_open(&s->chat, s->model, "none");
    if (rc == APP_OK)
        rc = eval_runtime_open(&x->runtime, &s->tokenizer, x->args, NULL);
    x->work.runtime = &x->runtime;
    if (rc == APP_OK && x->n_tokens >= x->runtime.info.n_ctx_train)
        rc = app_fail(APP_BAD_INPUT, "--lengths %d: the model's context holds %d tokens, the probe included",
                      (int)x->n_tokens, (int)x->runtime.info.n_ctx_train);
    return rc;
}

static int open_texts(struct runner *x)
{
    struct eval_setup *s = &x->setup;
    int rc = eval_haystack_open(&s->source.haystack, "prose", s->source.seed); /* its name is in run.json */
    if (rc == APP_OK)
        rc =
            eval_texts_make(&x->texts, &s->tokenizer, x->args->text, x->n_texts, x->n_tokens, s->source.seed);
    memcpy(s->text_hash, x->texts.hash, sizeof s->text_hash);
    return rc;
}

static int open_folder(struct runner *x)
{
    json_t *run = eval_manifest_make(&x->setup, &x->configs, &x->runtime);
    app_json_set(&run, "study", json_string(x->args->study));
    app_json_set(&run, "texts",
                 json_pack("{s:i, s:i, s:i}", "n", (int)x->n_texts, "tokens", (int)x->n_tokens, "of_file",
                           (int)x->texts.n_of_file));
    return eval_manifest_open(&x->journal, x->args->app.out, run);
}

static int open_all(struct runner *x, const struct eval_suite *study)
{
    int rc = check_options(x->args);
    if (rc == APP_OK)
        rc = read_numbers(x, study);
    if (rc == APP_OK)
        rc = eval_configs_open(&x->configs, x->args, study);
    if (rc == APP_OK)
        rc = check_policies(x);
    if (rc == APP_OK)
        rc = open_model(x);
    if (rc == APP_OK)
        rc = open_texts(x);
    return rc == APP_OK ? open_folder(x) : rc;
}

static void close_all(struct runner *x)
{
    eval_perturb_clear(&x->numbers);
    eval_journal_close(&x->journal);
    eval_texts_clear(&x->texts);
    eval_runtime_close(&x->runtime);
    eval_configs_close(&x->configs);
    eval_setup_close(&x->setup);
}

/* ---- Texts ---- */

static void key_of(char key[MAX_KEY_SIZE], int32_t i)
{
    snprintf(key, MAX_KEY_SIZE, "text|%d", (int)i);
}

static int run_text(struct runner *x, int32_t i, const char *key)
{
    json_t *record;
    int rc = eval_perturb_record(&record, &x->work, x->texts.ids[i], x->n_tokens);
    if (rc != APP_OK)
        return rc;
    app_json_set(&record, "v", json_integer(1));
    app_json_set(&record, "key", json_string(key));
    app_json_set(&record, "index", json_integer(i));
    app_json_set(&record, "source", json_string(x->texts.of_file[i] ? "file" : "prose"));
    rc = record ? eval_journal_add(&x->journal, record) : eval_no_memory("the study");
    json_decref(record);
    x->n_new += rc == APP_OK;
    return rc;
}

static int each_text(struct runner *x)
{
    struct eval_progress progress = {.n_all = x->n_texts, .work_all = x->n_texts};
    int rc = APP_OK;
    app_stop_watch();
    eval_progress_start(&progress, x->args->quiet);
    for (int32_t i = 0; rc == APP_OK && i < x->n_texts; i++) {
        char key[MAX_KEY_SIZE];
        key_of(key, i);
        if (app_stop_asked()) {
            rc = APP_INTERRUPTED;
        } else if (!eval_journal_has(&x->journal, key)) {
            eval_progress_show(&progress, "perturbation", x->n_tokens);
            rc = run_text(x, i, key);
            progress.n_ran++;
            progress.work_ran++;
        }
        progress.n_done++;
        progress.work_done++;
    }
    eval_progress_end(&progress);
    app_stop_unwatch();
    return rc;
}

/* ---- The end ---- */

static int read_records(struct runner *x)
{
    struct eval_perturb *p = &x->numbers;
    const wnw_model_info *info = &x->runtime.info;
    struct eval_jsonl j;
    json_t *record = NULL;
    p->n_layer = info->n_layer;
    p->n_head = info->n_head;
    p->n_head_kv = info->n_head_kv;
    p->n_policies = x->work.n_policies;
    p->n_sizes = x->work.n_sizes;
    if (!eval_perturb_open(p, (int32_t)x->journal.n_keys))
        return eval_no_memory("the study");
    for (int32_t il = 0; il < p->n_layer; il++)
        p->sliding[il] = wnw_model_layer_is_swa(x->setup.model, il);
    int rc = eval_jsonl_open(&j, x->journal.path);
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &record)) == APP_OK && record) {
        if (!eval_perturb_add(p, record))
            rc = eval_jsonl_bad(&j, "this is not a record of the study; remove the line");
        json_decref(record);
    }
    eval_jsonl_close(&j);
    return rc;
}

static int write_form(const struct eval_args *args, const char *name, const struct eval_doc *d)
{
    char *path = app_in_folder(args->app.out, name);
    if (!path)
        return eval_no_memory("the study");
    const int rc = eval_doc_write(d, path, NULL);
    free(path);
    return rc;
}

static int write_forms(const struct eval_args *args, const struct eval_perturb_study *s)
{
    struct eval_doc text = {0}, csv = {0}, html = {0};
    eval_perturb_text(&text, s);
    eval_perturb_csv(&csv, s);
    int rc = eval_perturb_page(&html, s);
    if (rc == APP_OK && (text.no_memory || csv.no_memory || html.no_memory))
        rc = eval_no_memory("the study");
    if (rc == APP_OK)
        rc = write_form(args, "summary.txt", &text);
    if (rc == APP_OK)
        rc = write_form(args, "perturbation.csv", &csv);
    if (rc == APP_OK)
        rc = write_form(args, "report.html", &html);
    if (rc == APP_OK && args->app.json)
        rc = app_print_json(eval_perturb_json(s));
    if (rc == APP_OK && !args->app.json) {
        fwrite(text.text.s, 1, text.text.len, stdout);
        rc = app_finish_stdout();
    }
    eval_doc_clear(&text);
    eval_doc_clear(&csv);
    eval_doc_clear(&html);
    return rc;
}

static int finish(struct runner *x, int rc)
{
    const char *policies[EVAL_MAX_SIZES * EVAL_MAX_SIZES], *sizes[EVAL_MAX_SIZES];
    if (rc == APP_INTERRUPTED)
        app_note("interrupted; the same command goes on");
    if (!x->args->quiet)
        app_note("%zu texts in %s, of which %d are new", x->journal.n_keys, x->args->app.out, (int)x->n_new);
    if (x->journal.n_keys == 0)
        return APP_OK;
    const int read = read_records(x);
    if (read != APP_OK)
        return read;
    for (int32_t i = 0; i < x->work.n_sizes; i++)
        sizes[i] = x->work.config[i].size_text;
    for (int32_t i = 0; i < x->work.n_policies; i++)
        policies[i] = x->work.config[i * x->work.n_sizes].recipe;
    json_t *command = eval_manifest_command();
    const struct eval_perturb_study s = {.numbers = &x->numbers,
                                         .model = x->runtime.info.name,
                                         .policies = policies,
                                         .sizes = sizes,
                                         .n_tokens = x->n_tokens,
                                         .n_of_file = x->texts.n_of_file,
                                         .seed = x->setup.source.seed,
                                         .command = command};
    rc = write_forms(x->args, &s);
    json_decref(command);
    return rc;
}

int eval_run_perturbation(const struct eval_args *args, const struct eval_suite *study)
{
    struct runner x = {.args = args};
    int rc = open_all(&x, study);
    if (rc == APP_OK) {
        rc = each_text(&x);
        if (rc == APP_OK || rc == APP_INTERRUPTED) {
            const int written = finish(&x, rc);
            rc = written == APP_OK ? rc : written;
        }
    }
    close_all(&x);
    return rc;
}
