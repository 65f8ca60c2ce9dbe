/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common, and the list of tasks and
 * lengths. */
#ifndef WNW_EVAL_SETUP_H
#define WNW_EVAL_SETUP_H

#include "eval/args.h"
#include "eval/run/suite.h"
#include "eval/tasks/records.h"
#include "eval/tasks/set.h"
#include "eval/tasks/task.h"

enum { EVAL_MAX_TASKS = 64, EVAL_MAX_LENGTHS = 64 };

/* Samples of one task and length, or of one set of the user's. */
struct eval_item {
    const struct eval_task *task; /* one of the two is NULL */
    const struct eval_set *set;
    int32_t n_target, n_trials; /* 0 and 1 for sets */
    int32_t n;                  /* samples */
    int32_t
        n_probes; /* further samples for the full cache alone: can it solve the task? Their numbers begin at
                         EVAL_GATE_FIRST */
    struct {
        int32_t n, n_probes;
    } planned;          /* both, before --time-budget lowered them */
    int32_t max_new;    /* the most tokens of an answer, where a line of the file has no number of its own */
    char file_hash[17]; /* of a set's file, hexadecimal */
    struct eval_fit fit;
    struct eval_set_reader reader;
    bool open; /* the reader */
    bool text; /* pieces of --text in place of samples; task and set are NULL */
};
const char *eval_item_name(const struct eval_item *item);
/* Whether its length is within a model's context. Items that are longer are left out of a run, whole. */
bool eval_item_fits(const struct eval_item *item, int32_t n_ctx);

struct eval_setup {
    const struct eval_args *args;
    const struct eval_suite *suite; /* NULL = the options name the tasks */
    char *model_path;
    wnw_model *model;
    struct eval_tokenizer tokenizer;
    struct eval_chat chat;
    struct eval_records squad, hotpot;
    struct eval_source source;
    struct eval_item *items; /* [n_items], owned */
    int32_t n_items;
    /* While the lists are read: */
    const struct eval_task *tasks[EVAL_MAX_TASKS];
    int32_t lengths[EVAL_MAX_LENGTHS];
    const struct eval_set *sets[EVAL_MAX_TASKS]; /* of files */
    int32_t n_tasks, n_lengths, n_sets;
    bool wants_text;
    /* Of --text: */
    int32_t *text_ids, n_text; /* owned */
    int32_t text_bos;          /* the first of them, which every piece begins with; -1 = none */
    char text_hash[17];
    char squad_hash[17], hotpot_hash[17]; /* of the files; "" without them */
};

/* Checks the arguments, then opens model, haystack and files. Returns an exit code; the caller closes in any
 * case. */
int eval_setup_open(struct eval_setup *s, const struct eval_args *args, const struct eval_suite *suite);
void eval_setup_close(struct eval_setup *s);
/* The folder of a set's file, or the file itself (EVAL_OWN_FILE); NULL if the options name none. */
const char *eval_setup_folder(const struct eval_setup *s, const struct eval_set *set);
/* Tokens that answers to the set may have beyond its own number. */
int32_t eval_extra_tokens(const struct eval_args *args, const struct eval_set *set);
/* Opens a set's file; prompts are cut to what the model and the options allow. Returns an exit code. */
int eval_setup_open_set(struct eval_set_reader *r, const struct eval_setup *s, const struct eval_set *set);
/* Finds how many units make the length of each item. Where samples are read, and not only printed, items that the model's
 * context does not hold are left out. Returns an exit code. */
int eval_setup_fit(struct eval_setup *s);
/* Makes sample `index` of an item; *more is false where a file has no such sample. A file is read forwards;
 * a smaller index begins it again. Returns an exit code; the caller clears the sample in any case. */
int eval_setup_sample(struct eval_sample *sample, bool *more, struct eval_setup *s, struct eval_item *item,
                      int32_t index);
/* Piece `index` of the text, which is borrowed. */
void eval_setup_piece(const int32_t **ids, int32_t *n, const struct eval_setup *s,
                      const struct eval_item *item, int32_t index);
/* setup_lists.c: fills in items and depths from the lists of the options. Returns an exit code. */
int eval_setup_lists(struct eval_setup *s);

#endif
