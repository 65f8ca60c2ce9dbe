/* SPDX-License-Identifier: MIT */
/* What the forms of a report share: text, CSV, JSON and HTML. */
#ifndef WNW_EVAL_REPORT_IMPL_H
#define WNW_EVAL_REPORT_IMPL_H

#include "eval/curve.h"
#include "eval/doc.h"
#include "eval/report.h"
#include "eval/versus.h"

/* Everything that a report says. */
struct eval_report {
    const struct eval_report_options *options;
    struct eval_runs runs;
    struct eval_tables *tables;  /* [runs.n], owned */
    char *names[2];              /* of --compare, owned; NULL = none */
    struct eval_versus **versus; /* [runs.n][n_versus[i]], owned */
    int32_t *n_versus;
};

/* ---- Words (report_words.c) ---- */

/* The names of the numbers in CSV and JSON. */
extern const char *const eval_words_measures[EVAL_N_MEASURES];
/* "N = 1024" or "all lengths"; returns out. */
const char *eval_words_length(char out[32], int32_t n_target);
/* "[-33.3, -13.9]", "n<6" or "[0.0, 0.0] (no variation)"; returns out. */
enum { EVAL_MAX_INTERVAL = 80 };
const char *eval_words_interval(char out[EVAL_MAX_INTERVAL], const struct eval_paired *p);
/* Adds what a reader must know before believing the tables of a run, one sentence per line: what the number of samples
 * can show, tasks that say nothing, stand-ins, bad lines, how many intervals exclude 0 by chance. */
void eval_words_notes(struct eval_doc *d, const struct eval_tables *t);
/* A line of results in seconds and per-second numbers. NaN where it has no times. */
double eval_words_decode_rate(const struct eval_cell *c);
/* The number of intervals in a block: rows other than the full cache's, once for every task, domain and for the mean. */
int32_t eval_words_n_intervals(const struct eval_block *b);

/* ---- Forms ---- */

void eval_report_text(struct eval_doc *d, const struct eval_report *r);
void eval_report_csv(struct eval_doc *d, const struct eval_report *r);
/* NULL if memory runs out. */
json_t *eval_report_json(const struct eval_report *r);
/* Returns an exit code. */
int eval_report_html(struct eval_doc *d, const struct eval_report *r);

#endif
