/* SPDX-License-Identifier: MIT */
/* A number of a task on a grid by depth and length: the mean over trials. And the score of each question where a context has
 * several. */
#ifndef WNW_EVAL_MAP_H
#define WNW_EVAL_MAP_H

#include "eval/results/table.h"

struct eval_map_score;
struct eval_map {
    int32_t block, task, row; /* of tables: a block over all lengths, and its row */
    const struct eval_map_score *score;
    double *depth;  /* [n_depths] in per cent, ascending; owned */
    double *length; /* [n_lengths] ascending; owned */
    int32_t n_depths, n_lengths;
    double *value;               /* [n_depths][n_lengths] in per cent, NaN for empty cells; owned */
    int32_t *n;                  /* [n_depths][n_lengths] samples; owned */
    double mean;                 /* of the cells */
    int64_t n_all;               /* samples of all cells */
    bool binary;                 /* all values are 0 or 1, so that the next is of use */
    struct eval_interval wilson; /* of all samples together, in per cent */
    double unprotected;          /* mean of the samples whose evidence is not kept regardless of its score */
    bool has_protected;
    int32_t n_protected; /* of n_all: samples whose evidence is kept so */
};

/* Makes the map of a task, a variant and a measure of 0 to 1. No cells if there are no such results. Returns false if
 * memory runs out. The caller clears it in any case. */
bool eval_map_make(struct eval_map *out, const struct eval_run *run, int32_t task, int32_t variant,
                   enum eval_measure measure);
void eval_map_clear(struct eval_map *h);
/* What maps can show. */
struct eval_map_score {
    enum eval_measure measure; /* --niah-score has its name (eval_measure_name) */
    const char *alias;         /* a second name or NULL */
    bool usual;                /* drawn where no score is named */
    const char *about;         /* for a reader */
};
enum { EVAL_N_MAP_SCORES = 15 };
#define EVAL_MAP_NAMES                                                                                      \
    "score, fgt, partial, contains, wordset_recall, rouge1_recall or rouge_pkg_M_V with M = 1, 2, l and V " \
    "= p, r, f"
/* The tasks' own score is the first. */
extern const struct eval_map_score eval_map_scores[EVAL_N_MAP_SCORES];
/* Checks a name of --niah-score; NULL means the usual scores. Returns an exit code. */
int eval_map_check(const char *name);
/* Whether maps show this score: the named one, or a usual one if name is NULL. */
bool eval_map_shows(const char *name, const struct eval_map_score *score);

/* All maps of a run's tables that have cells, by block, task, row and score. */
struct eval_maps {
    struct eval_map *map; /* [n], owned */
    int32_t n;
};
/* Returns false if memory runs out; the caller clears in any case. */
bool eval_maps_make(struct eval_maps *out, const struct eval_tables *t);
void eval_maps_clear(struct eval_maps *m);
/* Those of a task in a block; *n is how many. */
const struct eval_map *eval_maps_of(int32_t *n, const struct eval_maps *m, int32_t block, int32_t task);

/* ---- Tasks with several questions on one context ---- */

enum { EVAL_MAX_TURNS = 16 };

/* Mean score of a variant at each of the first EVAL_MAX_TURNS turns of a task, over the strata of a block; NaN where it has
 * none. Returns how many turns the task has, of any variant, which may be more: 1 for tasks of one question, 0 for tasks that
 * the block does not have. */
int32_t eval_turn_means(double mean[EVAL_MAX_TURNS], const struct eval_run *run, const struct eval_block *b,
                        int32_t task, int32_t variant);
/* How many of a task's turns have a mean. */
int32_t eval_turns_shown(int32_t n_turns);

#endif
