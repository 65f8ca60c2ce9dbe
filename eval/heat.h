/* SPDX-License-Identifier: MIT */
/* A number of a task on a grid by depth and length: the mean over trials. */
#ifndef WNW_EVAL_HEAT_H
#define WNW_EVAL_HEAT_H

#include "eval/results.h"

struct eval_heat {
    double *depth;   /* [n_depths] in per cent, ascending; owned */
    int32_t *length; /* [n_lengths] ascending; owned */
    int32_t n_depths, n_lengths;
    double *value;      /* [n_depths][n_lengths] in per cent, NaN for empty cells; owned */
    int32_t *n;         /* [n_depths][n_lengths] samples; owned */
    double mean;        /* of the cells */
    double unprotected; /* mean of the samples whose evidence the method does not keep whatever its score */
    bool has_protected;
};

/* Makes the map of a task, a variant and a measure of 0 to 1. No cells if there are no such results. Returns false if
 * memory runs out. The caller clears it in any case. */
bool eval_heat_make(struct eval_heat *out, const struct eval_run *run, int32_t task, int32_t variant,
                    enum eval_measure measure);
void eval_heat_clear(struct eval_heat *h);

/* What maps can show. */
struct eval_heat_score {
    const char *name, *alias; /* as --niah-score has it; alias: a second name or NULL */
    enum eval_measure measure;
    const char *about; /* for a reader */
};
enum { EVAL_N_HEAT_SCORES = 6 };
#define EVAL_HEAT_NAMES "score, partial, wordset_recall, rouge1_recall, rouge_pkg_1_r or fgt"
/* The tasks' own score is the first. */
extern const struct eval_heat_score eval_heat_scores[EVAL_N_HEAT_SCORES];
/* Checks a name of --niah-score; NULL means all scores. Returns an exit code. */
int eval_heat_check(const char *name);
/* Whether maps show this score: the named one, or any if name is NULL. */
bool eval_heat_shows(const char *name, const struct eval_heat_score *score);

/* Whether a task has one sample for each depth and trial. */
bool eval_heat_is_on_grid(const char *task);

#endif
