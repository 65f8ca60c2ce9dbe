/* SPDX-License-Identifier: MIT */
/* What the forms of a report share: text, CSV, JSON and the page. */
#ifndef WNW_EVAL_REPORT_IMPL_H
#define WNW_EVAL_REPORT_IMPL_H

#include "eval/report/doc.h"
#include "eval/report/papers.h"
#include "eval/report/report.h"
#include "eval/results/curve.h"
#include "eval/results/map.h"
#include "eval/results/versus.h"

/* Everything that a report says. */
struct eval_report {
    const struct eval_args *args;
    const char *out; /* the page's place; NULL = where a report has it */
    struct eval_runs runs;
    struct eval_tables *tables;  /* [runs.n], owned */
    char *names[2];              /* of --compare, owned; NULL = none */
    struct eval_versus **versus; /* [runs.n][n_versus[i]], owned */
    int32_t *n_versus;
    struct eval_maps *maps; /* [runs.n], owned */
    struct eval_papers papers;
};

/* ---- Names of variants (report_label.c) ---- */

/* A variant's label, with its size or without. The caller releases it; NULL if memory runs out. */
json_t *eval_label_json(const struct eval_run *run, const struct eval_variant *v, bool size);
/* The recipe of a variant as it was asked for, which run.json has, or as answers have it. The caller releases it. */
json_t *eval_asked_for(const struct eval_run *run, const struct eval_variant *v);

/* ---- Words (report_words.c) ---- */

/* "N = 1024" or "all lengths"; returns out. */
const char *eval_words_length(char out[32], int32_t n_target);
/* What a reader must know before believing the tables of a run, a sentence or two each: what the number of samples
 * can show, tasks that show nothing, substitutes, bad lines, how many intervals exclude 0 by chance. NULL if memory runs out. */
json_t *eval_notes_json(const struct eval_tables *t);

/* ---- Forms ---- */

/* The numbers of a cell: the names of all of them in the order of columns, and an object of those that have a value. */
enum { EVAL_MAX_CELL_FIELDS = EVAL_N_MEASURES + 26 };
size_t eval_cell_keys(const char *keys[EVAL_MAX_CELL_FIELDS]);
json_t *eval_cell_json(const struct eval_cell *c);
/* For scores of 0 and 1, the facts about a cell other than the difference: "Wilson [49.0, 94.3], lost 2, gained 1, p = 1.00". Adds
 * that answers of one context count one by one, if there are any. "" for other scores. Returns out (report_text.c). */
enum { EVAL_MAX_COUNTS = 200 };
const char *eval_words_counts(char out[EVAL_MAX_COUNTS], const json_t *cell);
/* What stood in for data of a task in the list of a run, without the names of tasks; of any task if it is NULL (report_csv.c). NULL if
 * memory runs out. */
json_t *eval_substitutes_of(const json_t *list, const char *task);

/* Prints the summaries from the report's object, and the maps by depth and length from the report. */
void eval_report_text(struct eval_doc *d, const struct eval_report *r, const json_t *object);
void eval_report_csv(struct eval_doc *d, const json_t *object);
/* Nothing where there are no maps. */
void eval_report_maps(struct eval_doc *d, const struct eval_report *r);
/* One object with everything that the page shows, which the caller releases; NULL on failure. Returns an exit code. */
int eval_report_json(json_t **out, const struct eval_report *r);
/* A copy of it without what the page does not show, so that the page is small; NULL if memory runs out. */
json_t *eval_report_page_json(const json_t *report);

/* ---- Parts of the JSON object; NULL if memory runs out ---- */

/* Times and memory of a row at its length (report_costs.c), and whether each method read by itself, so that all times are
 * its own. */
json_t *eval_costs_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row);
bool eval_costs_are_separate(const struct eval_run *run);
/* Predictions for the tasks whose scores say nothing (report_predictions.c). */
json_t *eval_predictions_json(const struct eval_tables *t, const struct eval_block *b);
/* The papers' tables with our numbers (report_papers.c). */
json_t *eval_papers_json(const struct eval_papers *papers, const struct eval_tables *t);
/* Worst cases of a block with their texts (report_cases.c). Returns an exit code. */
int eval_cases_json(json_t **out, const struct eval_tables *t, const struct eval_block *b);

#endif
