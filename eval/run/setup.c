/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common. */
#include "eval/run/setup.h"

#include "app/console.h"
#include "app/files.h"
#include "app/models.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

/* Refuses more samples than the file has questions, because sample i is question i of the file. */
static int check_questions(const struct eval_setup *s)
{
    for (int32_t i = 0; i < s->n_items; i++) {
        const struct eval_task *task = s->items[i].task;
        const struct eval_records *r = !task                             ? NULL
                                       : task->flags & EVAL_WANTS_SQUAD  ? s->source.squad
                                       : task->flags & EVAL_WANTS_HOTPOT ? s->source.hotpot
                                                                         : NULL;
        if (r && s->items[i].n > r->n_questions)
            return app_fail(APP_BAD_INPUT, "%s has %d questions; lower --samples to that", task->name,
                            r->n_questions);
    }
    return APP_OK;
}

/* Every line of the files is looked at before the first sample is made. */
static int check_sets(struct eval_setup *s)
{
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < s->n_items; i++) {
        struct eval_item *item = &s->items[i];
        uint64_t hash;
        int32_t n;
        if (!item->set)
            continue;
        rc = eval_set_check(&n, &hash, item->set, eval_setup_folder(s, item->set));
        if (rc == APP_OK && n < item->n)
            item->n = n;
        snprintf(item->file_hash, sizeof item->file_hash, "%016llx", (unsigned long long)hash);
    }
    return rc;
}

int eval_setup_open_set(struct eval_set_reader *r, const struct eval_setup *s, const struct eval_set *set)
{
    int32_t overhead;
    int rc = eval_set_open(r, set, eval_setup_folder(s, set));
    if (rc == APP_OK)
        rc = eval_count_overhead(&overhead, &s->source);
    if (rc != APP_OK)
        return rc;
    r->tokenizer = &s->tokenizer;
    r->chat = &s->chat;
    r->extra_new = eval_extra_tokens(s->args, set);
    r->chat_always = strcmp(set->group, "longbench") == 0 && strcmp(s->args->lb_chat, "all") == 0;
    r->least_new = eval_answer_tokens(s->args, s->suite);
    const bool scb = strcmp(set->group, "scbench") == 0;
    r->n_ctx = scb ? s->source.n_ctx : 0;
    r->overhead = overhead;
    r->max_prompt = s->args->max_prompt != APP_UNSET ? (int32_t)s->args->max_prompt
                    : set->flags & EVAL_OWN_FILE || scb
                        ? 0
                        : eval_set_max_prompt(s->source.n_ctx, eval_set_max_new(r), overhead);
    return APP_OK;
}

/* ---- Opening ---- */

static int open_model(struct eval_setup *s)
{
    wnw_model_params params = wnw_model_default_params();
    params.repack = !s->args->dump; /* no product uses the weights of a tokenizer */
    int rc = app_model_path(&s->model_path, s->args->app.model);
    if (rc != APP_OK)
        return rc;
    const int status = app_model_open(&s->model, s->model_path, &params, NULL);
    if (status != WNW_OK)
        return app_fail_status(status);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_model_get_info(s->model, &info);
    s->source.n_ctx = info.n_ctx_train;
    s->tokenizer = eval_tokenizer_of(s->model);
    return eval_chat_open(&s->chat, s->model, s->args->app.chat);
}

/* Pieces of n tokens, BOS included, that the text makes; a rest of half a piece or more is one too. */
static int32_t n_pieces(const struct eval_setup *s, int32_t n)
{
    const int32_t n_bos = s->text_bos >= 0;
    return (s->n_text - n_bos + (n - n_bos) / 2) / (n - n_bos);
}

/* The length of pieces where the options name none, which the model's context may be too short for. */
static int32_t piece_length(const struct eval_setup *s, const struct eval_item *item)
{
    const bool given = s->args->lengths || s->suite;
    return given || eval_item_fits(item, s->source.n_ctx) ? item->n_target : s->source.n_ctx;
}

/* Tokens of --text, and how many pieces of each length they make. */
static int read_text(struct eval_setup *s)
{
    char *text = NULL;
    size_t len = 0;
    int32_t *ids = NULL;
    bool any = false;
    for (int32_t i = 0; i < s->n_items; i++)
        any = any || s->items[i].text;
    if (!any)
        return APP_OK;
    int rc = app_read_file(&text, &len, s->args->text);
    const int status =
        rc == APP_OK ? wnw_tokenize(s->model, text, len, true, false, &ids, &s->n_text) : WNW_OK;
    if (status != WNW_OK)
        rc = app_fail_status(status);
    if (rc == APP_OK)
        snprintf(s->text_hash, sizeof s->text_hash, "%016llx", (unsigned long long)wnw__hash_of(text, len));
    s->text_ids = ids;
    s->text_bos = rc == APP_OK && s->tokenizer.adds_bos ? ids[0] : -1;
    free(text);
    for (int32_t i = 0; rc == APP_OK && i < s->n_items; i++) {
        struct eval_item *item = &s->items[i];
        if (!item->text)
            continue;
        item->n_target = piece_length(s, item);
        const int32_t n = n_pieces(s, item->n_target);
        if (n == 0)
            rc = app_fail(APP_BAD_INPUT,
                          "'%s' has %d tokens, which is less than half a piece of %d; give shorter "
                          "--lengths",
                          s->args->text, (int)s->n_text, (int)item->n_target);
        if (n < item->n)
            item->n = n;
    }
    return rc;
}

void eval_setup_piece(const int32_t **ids, int32_t *n, const struct eval_setup *s,
                      const struct eval_item *item, int32_t index)
{
    const int32_t n_bos = s->text_bos >= 0, n_own = item->n_target - n_bos, from = n_bos + index * n_own;
    *ids = s->text_ids + from;
    *n = s->n_text - from < n_own ? s->n_text - from : n_own;
}

bool eval_item_fits(const struct eval_item *item, int32_t n_ctx)
{
    return item->n_target <= n_ctx;
}

const char *eval_item_name(const struct eval_item *item)
{
    return item->text ? "ppl" : item->task ? item->task->name : item->set->name;
}

/* Documents and questions of a file (NULL = none), and its hash. *source becomes r. */
static int read_records(struct eval_records *r, const struct eval_records **source, char hash[17],
                        const char *path)
{
    const int rc = path ? eval_records_read(r, path) : APP_OK;
    if (rc == APP_OK && path) {
        snprintf(hash, 17, "%016llx", (unsigned long long)r->hash);
        *source = r;
    }
    return rc;
}

int eval_setup_open(struct eval_setup *s, const struct eval_args *args, const struct eval_suite *suite)
{
    *s = (struct eval_setup){.args = args, .suite = suite};
    s->source.seed = (uint64_t)args->app.seed;
    s->source.n_trials = args->trials == APP_UNSET ? 1 : (int32_t)args->trials;
    s->source.needle = args->needle;
    s->source.needle_mark = strcmp(args->niah_compat, "compresskv") == 0;
    int rc = eval_setup_lists(s);
    if (rc == APP_OK)
        rc = read_records(&s->squad, &s->source.squad, s->squad_hash, args->squad);
    if (rc == APP_OK)
        rc = read_records(&s->hotpot, &s->source.hotpot, s->hotpot_hash, args->hotpot);
    if (rc == APP_OK)
        rc = check_questions(s);
    if (rc == APP_OK)
        rc = check_sets(s);
    if (rc == APP_OK)
        rc = eval_haystack_open(&s->source.haystack, args->haystack, s->source.seed);
    if (rc == APP_OK)
        rc = open_model(s);
    if (rc == APP_OK)
        rc = read_text(s);
    for (int32_t i = 0; i < s->n_items; i++) {
        s->items[i].planned.n = s->items[i].n;
        s->items[i].planned.n_probes = s->items[i].n_probes;
    }
    s->source.tokenizer = &s->tokenizer;
    s->source.chat = &s->chat;
    return rc;
}

void eval_setup_close(struct eval_setup *s)
{
    eval_haystack_close(&s->source.haystack);
    eval_records_clear(&s->squad);
    eval_records_clear(&s->hotpot);
    eval_chat_close(&s->chat);
    for (int32_t i = 0; i < s->n_items; i++)
        if (s->items[i].open)
            eval_set_close(&s->items[i].reader);
    free(s->items);
    wnw_free(s->text_ids);
    wnw_model_free(s->model);
    free(s->model_path);
}

/* ---- Samples ---- */

int eval_setup_fit(struct eval_setup *s)
{
    const int32_t n_ctx = s->source.n_ctx;
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < s->n_items; i++) {
        struct eval_item *item = &s->items[i];
        s->source.n_trials = item->n_trials;
        if (item->task && (s->args->dump || eval_item_fits(item, n_ctx)))
            rc = eval_task_fit(&item->fit, &s->source, item->task, item->n_target);
    }
    return rc;
}

int eval_setup_sample(struct eval_sample *sample, bool *more, struct eval_setup *s, struct eval_item *item,
                      int32_t index)
{
    int rc = APP_OK;
    *more = !item->text;
    *sample = (struct eval_sample){0};
    if (item->text)
        return APP_OK; /* has no samples */
    if (item->task) {
        s->source.n_trials = item->n_trials;
        rc = eval_task_sample(sample, &s->source, item->task, &item->fit, item->n_target, index);
    } else {
        if (!item->open || index < item->reader.index) {
            if (item->open)
                eval_set_close(&item->reader);
            rc = eval_setup_open_set(&item->reader, s, item->set);
            item->open = true;
        }
        while (rc == APP_OK && *more && item->reader.index <= index) {
            eval_sample_clear(sample);
            rc = eval_set_next(&item->reader, sample, more);
        }
    }
    if (item->task || eval_answer_tokens(s->args, s->suite) > 0) /* lines of a file may have their own */
        sample->max_new = item->max_new;
    return rc;
}
