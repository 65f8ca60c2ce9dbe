/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common. */
#include "eval/run/setup.h"

#include "app/console.h"
#include "app/files.h"
#include "app/models.h"
#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"

#include <stdlib.h>
#include <string.h>

/* ---- Files ---- */

/* Refuses more samples than the file has questions, because sample i is question i of the file. Of a folder all are asked. */
static int check_questions(struct eval_setup *s)
{
    for (int32_t i = 0; i < s->items.n; i++) {
        int32_t *n = &s->items.items[i].n;
        const struct eval_task *task = s->items.items[i].task;
        const struct eval_records *hotpot = task->flags & EVAL_WANTS_HOTPOT ? s->source.hotpot : NULL,
                                  *r = task->flags & EVAL_WANTS_SQUAD ? s->source.squad : hotpot;
        if (r && *n > r->n_questions)
            return app_fail(APP_BAD_INPUT, "%s has %d questions; lower --samples to that", task->name,
                            r->n_questions);
        if (task->flags & EVAL_WANTS_DOCUMENTS && *n > s->folder.n_questions)
            *n = s->folder.n_questions;
    }
    return APP_OK;
}

/* Every line of the files is looked at before the first sample is made. */
static int check_sets(struct eval_setup *s)
{
    for (int32_t i = 0; i < s->items.n; i++) {
        struct eval_item *item = &s->items.items[i];
        uint64_t hash;
        int32_t n;
        if (!(item->task->flags & EVAL_IS_SET))
            continue;
        WNW_TRY(eval_set_check(&n, &hash, item->task, eval_task_source(s->args, item->task)));
        item->n = n < item->n ? n : item->n;
        eval_hash_text(item->file_hash, hash);
    }
    return APP_OK;
}

/* Opens a set's file; prompts are cut to what the model and the options allow. */
static int open_set(struct eval_set_reader *r, const struct eval_setup *s, const struct eval_task *set)
{
    const bool scb = eval_task_is_of(set, "scbench");
    int32_t overhead;
    WNW_TRY(eval_set_open(r, set, eval_task_source(s->args, set)));
    WNW_TRY(eval_count_overhead(&overhead, &s->source));
    r->tokenizer = &s->tokenizer;
    r->chat = &s->chat;
    r->extra_new = eval_extra_tokens(s->args, set);
    r->chat_always = eval_task_is_of(set, "longbench") && strcmp(s->args->lb_chat, "all") == 0;
    r->least_new = eval_answer_tokens(s->args, s->suite);
    r->n_ctx = scb ? s->source.n_ctx : 0;
    r->overhead = overhead;
    if (s->args->max_prompt != APP_UNSET)
        r->max_prompt = (int32_t)s->args->max_prompt;
    else if (set->flags & EVAL_OWN_FILE || scb)
        r->max_prompt = 0;
    else
        r->max_prompt = eval_set_max_prompt(s->source.n_ctx, eval_set_max_new(r), overhead);
    return APP_OK;
}

/* Lines of a file and pieces of a text are no samples that can be drawn again. */
static int check_split(const struct eval_setup *s)
{
    for (int32_t i = 0; i < s->items.n; i++)
        if (strcmp(s->args->split, "dev") == 0 && !eval_item_is_made(&s->items.items[i]))
            return app_fail(
                APP_BAD_INPUT,
                "--split dev has no samples of %s, which are lines of a file; put those to choose by "
                "into a file of their own",
                s->items.items[i].task->name);
    return APP_OK;
}

/* ---- Texts ---- */

/* Pieces of n tokens, BOS included, that the text makes; a rest of half a piece or more is one too. */
static int32_t n_pieces(const struct eval_setup *s, int32_t n)
{
    const int32_t n_bos = s->tokenizer.bos >= 0;
    return (s->n_text - n_bos + (n - n_bos) / 2) / (n - n_bos);
}

/* The length of pieces where the options name none, which the model's context may be too short for. */
static int32_t piece_length(const struct eval_setup *s, const struct eval_item *item)
{
    const bool given = s->args->lengths || s->suite;
    return given || eval_item_fits(item, s->source.n_ctx) ? item->n_target : s->source.n_ctx;
}

/* Tokens of --text. */
static int read_text(struct eval_setup *s)
{
    char *text = NULL;
    size_t len = 0;
    int rc = app_read_file(&text, &len, s->args->text);
    if (rc == APP_OK)
        rc = eval_status_code(wnw_tokenize(s->model, text, len, true, false, &s->text_ids, &s->n_text));
    if (rc == APP_OK)
        eval_hash_text(s->text_hash, wnw__hash_of(text, len));
    free(text);
    return rc;
}

/* How many pieces of each length the text makes. */
static int cut_text(struct eval_setup *s)
{
    for (int32_t i = 0; i < s->items.n; i++) {
        struct eval_item *item = &s->items.items[i];
        if (!(item->task->flags & EVAL_IS_TEXT))
            continue;
        if (!s->text_ids)
            WNW_TRY(read_text(s));
        item->n_target = piece_length(s, item);
        const int32_t n = n_pieces(s, item->n_target);
        if (n == 0)
            return app_fail(APP_BAD_INPUT,
                            "'%s' has %d tokens, which is less than half a piece of %d; give shorter "
                            "--lengths",
                            s->args->text, (int)s->n_text, (int)item->n_target);
        item->n = n < item->n ? n : item->n;
    }
    return APP_OK;
}

void eval_setup_piece(const int32_t **ids, int32_t *n, const struct eval_setup *s,
                      const struct eval_item *item, int32_t index)
{
    const int32_t n_bos = s->tokenizer.bos >= 0, n_own = item->n_target - n_bos, from = n_bos + index * n_own;
    *ids = s->text_ids + from;
    *n = s->n_text - from < n_own ? s->n_text - from : n_own;
}

/* ---- Opening ---- */

/* Seeds of --split dev: beyond those that --seed can name. */
static const uint64_t first_dev_seed = UINT64_C(1) << 32;

/* The seed of a run's samples. Those of --split dev are no seeds of --split test. */
static uint64_t seed_of(const struct eval_args *args)
{
    return (uint64_t)args->app.seed + (strcmp(args->split, "dev") == 0 ? first_dev_seed : 0);
}

int eval_setup_open_model(struct eval_setup *s, const struct eval_args *args, const char *chat)
{
    wnw_model_params params = wnw_model_default_params();
    wnw_model_info info = wnw_model_info_default();
    s->args = args;
    s->source.seed = seed_of(args);
    params.repack = !args->dump; /* no product uses the weights of a tokenizer */
    WNW_TRY(app_model_path(&s->model_path, args->app.model));
    WNW_TRY(eval_status_code(app_model_open(&s->model, s->model_path, &params, NULL)));
    wnw_model_get_info(s->model, &info);
    s->source.n_ctx = info.n_ctx_train;
    s->tokenizer = eval_tokenizer_of(s->model);
    return eval_chat_open(&s->chat, s->model, chat);
}

int eval_setup_open(struct eval_setup *s, const struct eval_args *args, const struct eval_suite *suite)
{
    struct eval_source *w = &s->source;
    *s = (struct eval_setup){.args = args, .suite = suite};
    *w = (struct eval_source){.tokenizer = &s->tokenizer,
                              .chat = &s->chat,
                              .n_trials = eval_n_trials(args),
                              .squad = &s->squad,
                              .hotpot = &s->hotpot,
                              .folder = &s->folder,
                              .needle = args->needle,
                              .needle_mark = strcmp(args->niah_compat, "compresskv") == 0};
    WNW_TRY(eval_items_open(&s->items, args, suite));
    WNW_TRY(check_split(s));
    memcpy(w->depths, s->items.depths.items, sizeof w->depths);
    w->n_depths = s->items.depths.n;
    if (args->squad)
        WNW_TRY(eval_records_read(&s->squad, args->squad));
    if (args->hotpot)
        WNW_TRY(eval_records_read(&s->hotpot, args->hotpot));
    if (args->documents)
        WNW_TRY(eval_records_read_folder(&s->folder, args->documents));
    WNW_TRY(check_questions(s));
    WNW_TRY(check_sets(s));
    WNW_TRY(eval_haystack_open(&w->haystack, args->haystack));
    WNW_TRY(eval_setup_open_model(s, args, eval_chat_name(args, suite)));
    WNW_TRY(cut_text(s));
    for (int32_t i = 0; i < s->items.n; i++) {
        s->items.items[i].planned.n = s->items.items[i].n;
        s->items.items[i].planned.n_probes = s->items.items[i].n_probes;
    }
    return APP_OK;
}

void eval_setup_close(struct eval_setup *s)
{
    eval_haystack_close(&s->source.haystack);
    eval_records_clear(&s->squad);
    eval_records_clear(&s->hotpot);
    eval_records_clear(&s->folder);
    eval_chat_close(&s->chat);
    eval_items_close(&s->items);
    wnw_free(s->text_ids);
    wnw_model_free(s->model);
    free(s->model_path);
}

/* ---- Samples ---- */

int eval_setup_fit(struct eval_setup *s)
{
    for (int32_t i = 0; i < s->items.n; i++) {
        struct eval_item *item = &s->items.items[i];
        s->source.n_trials = item->n_trials;
        if (eval_item_is_made(item) && (s->args->dump || eval_item_fits(item, s->source.n_ctx)))
            WNW_TRY(eval_task_fit(&item->fit, &s->source, item->task, item->n_target));
    }
    return APP_OK;
}

/* Reads a file up to its sample `index`. */
static int read_sample(struct eval_sample *sample, bool *more, struct eval_setup *s, struct eval_item *item,
                       int32_t index)
{
    if (!item->open || index < item->reader.index) {
        if (item->open)
            eval_set_close(&item->reader);
        item->open = true;
        WNW_TRY(open_set(&item->reader, s, item->task));
    }
    while (*more && item->reader.index <= index) {
        eval_sample_clear(sample);
        WNW_TRY(eval_set_next(&item->reader, sample, more));
    }
    return APP_OK;
}

int eval_setup_sample(struct eval_sample *sample, bool *more, struct eval_setup *s, struct eval_item *item,
                      int32_t index)
{
    const bool made = eval_item_is_made(item);
    *more = !(item->task->flags & EVAL_IS_TEXT);
    *sample = (struct eval_sample){0};
    if (!*more)
        return APP_OK; /* has no samples */
    s->source.n_trials = item->n_trials;
    WNW_TRY(made ? eval_task_sample(sample, &s->source, item->task, &item->fit, item->n_target, index)
                 : read_sample(sample, more, s, item, index));
    if (made || eval_answer_tokens(s->args, s->suite) > 0) /* lines may have their own */
        sample->max_new = item->max_new;
    return APP_OK;
}
