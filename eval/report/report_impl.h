/* SPDX-License-Identifier: MIT */
/* What the forms of a report share: text, CSV, JSON and the page. */
#ifndef WNW_EVAL_REPORT_IMPL_H
#define WNW_EVAL_REPORT_IMPL_H

#include "eval/report/doc.h"
#include "eval/report/papers.h"
#include "eval/report/report.h"
#include "eval/results/curve.h"
#include "eval/results/versus.h"

/* Everything that a report says. */
struct eval_report {
    const struct eval_report_options *options;
    struct eval_runs runs;
    struct eval_tables *tables;  /* [runs.n], owned */
    char *names[2];              /* of --compare, owned; NULL = none */
    struct eval_versus **versus; /* [runs.n][n_versus[i]], owned */
    int32_t *n_versus;
    struct eval_papers papers;
};

/* ---- Words (report_words.c) ---- */

/* "N = 1024" or "all lengths"; returns out. */
const char *eval_words_length(char out[32], int32_t n_target);
/* "[-33.3, -13.9]", "n<6" or "[0.0, 0.0] (no variation)"; returns out. */
enum { EVAL_MAX_INTERVAL = 80 };
const char *eval_words_interval(char out[EVAL_MAX_INTERVAL], const struct eval_paired *p);
/* An interval of a share, "[0.70, 0.89]"; "" where there is none. Returns out. */
const char *eval_words_share(char out[EVAL_MAX_INTERVAL], struct eval_interval share, int decimals);
/* What scores of 0 and 1 say besides their difference: "Wilson [49.0, 94.3], lost 2, gained 1, p = 1.00", and that answers of
 * one context count one by one, if there are such. "" for other scores. Returns out. */
enum { EVAL_MAX_COUNTS = 200 };
const char *eval_words_counts(char out[EVAL_MAX_COUNTS], const struct eval_cell *c);
/* Adds what a reader must know before believing the tables of a run, one sentence per line: what the number of samples
 * can show, tasks that say nothing, stand-ins, bad lines, how many intervals exclude 0 by chance. */
void eval_words_notes(struct eval_doc *d, const struct eval_tables *t);
/* A line of results in seconds and per-second numbers. NaN where it has no times. */
double eval_words_decode_rate(const struct eval_cell *c);
/* The number of intervals in a block: rows other than the full cache's, once for every task, domain and for the mean. */
int32_t eval_words_n_intervals(const struct eval_block *b);

/* ---- The numbers of a cell, of which CSV has all and JSON those that there are ---- */

struct eval_cell_field {
    const char *key;
    double value;     /* NaN = there is none */
    const char *text; /* in place of a number; NULL = it is one */
    bool always;      /* JSON has it as null where there is none */
    bool whole;       /* it counts something */
};
enum { EVAL_MAX_CELL_FIELDS = EVAL_N_MEASURES + 20 };
/* Fills in the fields in the order of columns and returns how many there are (report_words.c). */
int eval_cell_fields(struct eval_cell_field out[EVAL_MAX_CELL_FIELDS], const struct eval_cell *c);

/* ---- Forms ---- */

void eval_report_text(struct eval_doc *d, const struct eval_report *r);
void eval_report_csv(struct eval_doc *d, const struct eval_report *r);
/* The field that names what stood in for data of a task. */
void eval_stand_ins_csv(struct eval_doc *d, const json_t *info, const char *task);
/* The maps by depth and length as CSV; nothing where there are none. */
void eval_report_maps(struct eval_doc *d, const struct eval_report *r);
/* One object with everything that the page shows, which the caller releases; NULL on failure. Returns an exit code. */
int eval_report_json(json_t **out, const struct eval_report *r);
/* A copy of it without what the page does not show, so that the page is small; NULL if memory runs out. */
json_t *eval_report_page_json(const json_t *report);

/* ---- Parts of the JSON object; NULL if memory runs out ---- */

/* Times and memory of a row at its length (report_costs.c), and whether each method read by itself, so that all times are
 * its own. */
json_t *eval_costs_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row);
bool eval_costs_are_alone(const struct eval_run *run);
/* Predictions for the tasks whose scores say nothing (report_predictions.c). */
json_t *eval_predictions_json(const struct eval_tables *t, const struct eval_block *b);
/* The papers' tables with our numbers (report_papers.c). */
json_t *eval_papers_json(const struct eval_papers *papers, const struct eval_tables *t);
/* Worst cases of a block with their texts (report_cases.c). Returns an exit code. */
int eval_cases_json(json_t **out, const struct eval_tables *t, const struct eval_block *b);

/* ---- Parts of the text; width: of its labels ---- */

/* Adds a variant's label, with its size if so asked, and blanks up to a width in columns. */
void eval_text_label(struct eval_doc *d, const struct eval_run *run, const struct eval_variant *v, bool size,
                     int width);
/* Adds what tasks of a block without informative scores show. */
void eval_text_predictions(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b,
                           int width);
/* Adds times and memory at a block's length, where every method read by itself. */
void eval_text_costs(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width);
/* Adds scores by question and maps by depth and length of the tasks of a block that have them. shown: what maps show
 * (map.h); NULL = the score. */
void eval_text_maps(struct eval_doc *d, const struct eval_tables *t, const struct eval_block *b, int width,
                    const char *shown);

#endif
