/* SPDX-License-Identifier: MIT */
/* Suites: lists of tasks with lengths and numbers of samples, and the options that go with them. Studies are suites that are the
 * experiments of single papers. Both are read from eval/data/suites.txt, which says how they are written. */
#ifndef WNW_EVAL_SUITE_H
#define WNW_EVAL_SUITE_H

#include "app/text.h"
#include "eval/args.h"

struct eval_suite_item {
    const char *tasks; /* a task or group */
    int32_t length;    /* tokens; 0 = the list of the suite, as far as the model's context reaches */
    int32_t n;         /* samples; tasks on a grid have one for each depth and trial instead */
    int32_t n_trials;  /* of tasks on a grid */
};

/* What is compared: the product of these lists, which are written as in the options of the same names. */
enum { EVAL_N_LISTS = 9 };
struct eval_part {
    union {
        struct {
            const char *policies;
            const char *modes;            /* NULL: "agnostic" */
            const char *ratios, *budgets; /* one of the two; neither: "0.5" */
            const char *kv_types;         /* NULL: "f16" */
            const char *evict;            /* NULL: "end" */
            const char *masks;            /* NULL: no heads are masked */
            const char *mask_phase;       /* NULL: "all" */
            const char *mask_form;        /* NULL: "zero" */
        };
        const char *list[EVAL_N_LISTS];
    };
};

struct eval_suite {
    const char *name, *about;
    const char *depths, *lengths;
    struct eval_suite_item *items; /* [n_items], owned */
    struct eval_part *parts; /* [n_parts], owned: every sample is answered under what any of them names */
    int32_t n_items, n_parts;
    struct app_text contrasts; /* lines of eval_contrast_read, owned; empty = none */
    struct app_text notes;     /* lines that explain names, owned; empty = none */
    bool study;                /* --study names it */
    bool perturbs;             /* outputs of heads are measured (perturb/) and nothing is asked */
    bool frozen;               /* options cannot replace sizes, cache types, modes and rules of eviction */
    bool plain;                /* prompts have no chat template around them, unless --chat names one */
    bool short_answers;        /* answers have as many tokens as the task needs, not those of the benchmark */
    int32_t n_probes;          /* samples of each task that only show whether the full cache can solve it */
    bool separate_readings;    /* every policy reads for itself and answers alone: for times */
    int32_t answer_tokens;     /* exact length of every answer, also after an end token; 0 = until it ends */
};

struct eval_suites {
    struct eval_suite *items; /* [n], owned */
    int32_t n;
    char **lines; /* [n_lines] the texts of all suites, owned */
    int32_t n_lines;
};

/* Reads all suites and studies. Returns an exit code; the caller closes in any case. */
int eval_suites_open(struct eval_suites *out);
void eval_suites_close(struct eval_suites *all);
/* Finds the one that --suite or --study names; NULL where the options name neither. Returns an exit code: bad input for both
 * options, and for an unknown name. */
int eval_suite_choose(const struct eval_suite **suite, const struct eval_suites *all,
                      const struct eval_args *args);
/* The most tokens of an answer where short answers are asked for; 0 = the task's own number. */
int32_t eval_suite_answer(const char *task);

/* What the options say, or the suite (NULL = none): whether every policy reads for itself and answers alone; how many tokens every
 * answer has (0 = until it ends); whether the cache is compressed again before every further question. */
bool eval_reads_separately(const struct eval_args *args, const struct eval_suite *suite);
int32_t eval_answer_tokens(const struct eval_args *args, const struct eval_suite *suite);
/* The chat template that is named, or plain text where the suite says so and none is named. */
const char *eval_chat_name(const struct eval_args *args, const struct eval_suite *suite);
bool eval_recompresses(const struct eval_args *args);

#endif
