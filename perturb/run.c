/* SPDX-License-Identifier: MIT */
/* The perturbation study: its texts one by one into a folder, what is there already is skipped, and its forms. */
#include "perturb/perturb.h"

#include "app/console.h"
#include "app/json.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/run/manifest.h"
#include "eval/run/runner.h"
#include "perturb/record.h"
#include "perturb/texts.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS = 100, LEAST_TOKENS = 64, MAX_KEY_SIZE = 32 };

/* The study's own data, in addition to that of all runs. */
struct study {
    struct perturb_texts texts;
    struct perturb_work work;
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

static int check_policies(struct perturb_work *work, const struct eval_configs *c)
{
    work->config = c->items + 1; /* after the full cache */
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
        if (wnw_policy_needs(c->items[i].policy).profiles)
            return app_fail(APP_BAD_INPUT,
                            "--study perturbation has no calibration results for %s; leave it out",
                            c->items[i].recipe);
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
    WNW_TRY(perturb_texts_make(&x->texts, &s->tokenizer, run->args->text, x->n_texts, x->n_tokens,
                               s->source.seed));
    memcpy(s->text_hash, x->texts.hash, sizeof s->text_hash);
    return APP_OK;
}

/* Layers that no policy touches, by number. */
static json_t *sliding_layers(const struct eval_run *run)
{
    json_t *list = json_array();
    for (int32_t il = 0; il < run->runtime.info.n_layer; il++)
        if (wnw_model_layer_is_swa(run->setup.model, il))
            app_json_append(&list, json_integer(il));
    return list;
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
                 json_pack("{s:i, s:i, s:i, s:o}", "n", (int)x->n_texts, "tokens", (int)x->n_tokens,
                           "of_file", (int)x->texts.n_of_file, "sliding", sliding_layers(run)));
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
    WNW_TRY(perturb_record(&record, &x->work, x->texts.ids[i], x->n_tokens));
    app_json_set(&record, "v", json_integer(1));
    app_json_set(&record, "key", json_string(key));
    app_json_set(&record, "index", json_integer(i));
    app_json_set(&record, "source", json_string(x->texts.of_file[i] ? "file" : "prose"));
    const int rc = record ? eval_run_add(run, record) : eval_no_memory("the study");
    json_decref(record);
    return rc;
}

/* ---- The end ---- */

static int finish(struct eval_run *run)
{
    return perturb_report(run->args->app.out, run->args, NULL);
}

int perturb_run(const struct eval_args *args, const struct eval_suite *suite)
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
        rc = eval_run_all(&run, &kind, &(struct eval_items){.items = &texts, .n = 1});
    }
    perturb_texts_clear(&x.texts);
    eval_run_close(&run);
    return rc;
}
