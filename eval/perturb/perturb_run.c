/* SPDX-License-Identifier: MIT */
/* The perturbation study: its texts one by one into a folder, what is there already is skipped, and its forms. */
#include "eval/perturb/perturb_run.h"

#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/base/jsonl.h"
#include "eval/perturb/perturb_forms.h"
#include "eval/perturb/perturb_record.h"
#include "eval/perturb/perturb_texts.h"
#include "eval/run/manifest.h"
#include "eval/run/runner.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS = 100, LEAST_TOKENS = 64, MAX_KEY_SIZE = 32 };

/* What the study has besides what all runs have. */
struct study {
    struct eval_texts texts;
    struct eval_perturb_work work;
    struct eval_perturb numbers;
    int32_t n_texts, n_tokens;
};

static struct study *study_of(const struct eval_run *run)
{
    return run->user;
}

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

static int read_numbers(struct study *x, const struct eval_args *args, const struct eval_suite *suite)
{
    const char *lengths = args->lengths ? args->lengths : suite->lengths;
    int64_t n = 0;
    if (!app_parse_int(&n, lengths) || n < LEAST_TOKENS || n > INT32_MAX - 1)
        return app_fail(APP_BAD_INPUT,
                        "--lengths '%s': --study perturbation takes one length of %d tokens or more", lengths,
                        LEAST_TOKENS);
    x->n_tokens = (int32_t)n;
    x->n_texts = args->samples == APP_UNSET ? TEXTS : (int32_t)args->samples;
    return APP_OK;
}

static int check_policies(struct eval_perturb_work *work, const struct eval_configs *c)
{
    work->config = c->at + 1; /* after the full cache */
    work->n_policies = c->n_recipes - 1;
    work->n_sizes = work->n_policies > 0 ? (c->n - 1) / work->n_policies : 0;
    if (work->n_policies < 2)
        return app_fail(APP_BAD_INPUT,
                        "--study perturbation compares policies with the first of them; give two or more");
    if (c->n != 1 + work->n_policies * work->n_sizes)
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

/* What run.json describes: there are no items. */
static int open_setup(struct eval_run *run)
{
    struct study *x = study_of(run);
    struct eval_setup *s = &run->setup;
    WNW_TRY(eval_setup_open_model(s, run->args, "none"));
    WNW_TRY(eval_runtime_open(&run->runtime, &s->tokenizer, run->args, NULL));
    x->work.runtime = &run->runtime;
    if (x->n_tokens >= run->runtime.info.n_ctx_train)
        return app_fail(APP_BAD_INPUT,
                        "--lengths %d: the model's context holds %d tokens, the measured one included",
                        (int)x->n_tokens, (int)run->runtime.info.n_ctx_train);
    WNW_TRY(eval_haystack_open(&s->source.haystack, "prose")); /* its name is in run.json */
    WNW_TRY(
        eval_texts_make(&x->texts, &s->tokenizer, run->args->text, x->n_texts, x->n_tokens, s->source.seed));
    memcpy(s->text_hash, x->texts.hash, sizeof s->text_hash);
    return APP_OK;
}

static int open_all(struct eval_run *run)
{
    struct study *x = study_of(run);
    WNW_TRY(check_options(run->args));
    WNW_TRY(eval_shard_read(&run->shard, NULL));
    WNW_TRY(read_numbers(x, run->args, run->suite));
    WNW_TRY(eval_configs_open(&run->configs, run->args, run->suite));
    WNW_TRY(check_policies(&x->work, &run->configs));
    WNW_TRY(open_setup(run));
    json_t *description = eval_manifest_make(&run->setup, &run->configs, &run->runtime);
    app_json_set(&description, "study", json_string(run->args->study));
    app_json_set(&description, "texts",
                 json_pack("{s:i, s:i, s:i}", "n", (int)x->n_texts, "tokens", (int)x->n_tokens, "of_file",
                           (int)x->texts.n_of_file));
    return eval_run_open_folder(run, description);
}

/* ---- Texts ---- */

static int visit(struct eval_run *run, bool *ran, struct eval_item *item, int32_t i)
{
    struct study *x = study_of(run);
    char key[MAX_KEY_SIZE];
    json_t *record;
    snprintf(key, sizeof key, "text|%d", (int)i);
    *ran = !eval_journal_has(&run->journal, key);
    if (!*ran)
        return APP_OK;
    eval_progress_show(&run->progress, "perturbation", item->n_target);
    WNW_TRY(eval_perturb_record(&record, &x->work, x->texts.ids[i], x->n_tokens));
    app_json_set(&record, "v", json_integer(1));
    app_json_set(&record, "key", json_string(key));
    app_json_set(&record, "index", json_integer(i));
    app_json_set(&record, "source", json_string(x->texts.of_file[i] ? "file" : "prose"));
    const int rc = record ? eval_run_add(run, record) : eval_no_memory("the study");
    json_decref(record);
    return rc;
}

/* ---- The end ---- */

static int read_records(struct eval_run *run)
{
    struct study *x = study_of(run);
    struct eval_perturb *p = &x->numbers;
    const wnw_model_info *info = &run->runtime.info;
    struct eval_jsonl j;
    json_t *record = NULL;
    p->n_layer = info->n_layer;
    p->n_head = info->n_head;
    p->n_head_kv = info->n_head_kv;
    p->n_policies = x->work.n_policies;
    p->n_sizes = x->work.n_sizes;
    if (!eval_perturb_open(p, (int32_t)json_object_size(run->journal.keys)))
        return eval_no_memory("the study");
    for (int32_t il = 0; il < p->n_layer; il++)
        p->sliding[il] = wnw_model_layer_is_swa(run->setup.model, il);
    int rc = eval_jsonl_open(&j, run->journal.path);
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
    static const char *const names[] = {"summary.txt", "perturbation.csv", "report.html"};
    enum { TEXT, CSV, PAGE, N_FORMS };
    struct eval_doc form[N_FORMS] = {0};
    eval_perturb_text(&form[TEXT], s);
    eval_perturb_csv(&form[CSV], s);
    int rc = eval_perturb_page(&form[PAGE], s);
    for (int i = 0; rc == APP_OK && i < N_FORMS; i++)
        rc = form[i].no_memory ? eval_no_memory("the study") : APP_OK;
    for (int i = 0; rc == APP_OK && i < N_FORMS; i++)
        rc = write_form(args, names[i], &form[i]);
    if (rc == APP_OK && args->app.json)
        rc = app_print_json(eval_perturb_json(s));
    if (rc == APP_OK && !args->app.json) {
        fwrite(form[TEXT].text.s, 1, form[TEXT].text.len, stdout);
        rc = app_finish_stdout();
    }
    for (int i = 0; i < N_FORMS; i++)
        eval_doc_clear(&form[i]);
    return rc;
}

static int finish(struct eval_run *run)
{
    const char *policies[EVAL_MAX_SIZES * EVAL_MAX_SIZES], *sizes[EVAL_MAX_SIZES];
    const struct study *x = study_of(run);
    WNW_TRY(read_records(run));
    for (int32_t i = 0; i < x->work.n_sizes; i++)
        sizes[i] = x->work.config[i].size_text;
    for (int32_t i = 0; i < x->work.n_policies; i++)
        policies[i] = x->work.config[i * x->work.n_sizes].recipe;
    json_t *command = eval_manifest_command();
    const struct eval_perturb_study s = {.numbers = &x->numbers,
                                         .model = run->runtime.info.name,
                                         .policies = policies,
                                         .sizes = sizes,
                                         .n_tokens = x->n_tokens,
                                         .n_of_file = x->texts.n_of_file,
                                         .seed = run->setup.source.seed,
                                         .command = command};
    const int rc = write_forms(run->args, &s);
    json_decref(command);
    return rc;
}

int eval_run_perturbation(const struct eval_args *args, const struct eval_suite *suite)
{
    static const struct eval_run_kind kind = {.records = "texts", .visit = visit, .finish = finish};
    struct study x = {.n_texts = 0};
    struct eval_run run = {.args = args, .suite = suite, .user = &x};
    int rc = open_all(&run);
    if (rc == APP_OK) {
        struct eval_item texts = {
            .task = &eval_task_text, .n_target = x.n_tokens, .n = x.n_texts, .planned.n = x.n_texts};
        /* All texts cost the same. */
        run.pace = (struct eval_pace){.token_ms = 1, .n_reads = 1, .n_ctx = run.runtime.info.n_ctx_train};
        rc = eval_run_all(&run, &kind, &(struct eval_items){.at = &texts, .n = 1});
    }
    eval_perturb_clear(&x.numbers);
    eval_texts_clear(&x.texts);
    eval_run_close(&run);
    return rc;
}
