/* SPDX-License-Identifier: MIT */
/* From folders of results to tables, charts and examples: winnow report, and the end of winnow eval. */
#ifndef WNW_EVAL_REPORT_H
#define WNW_EVAL_REPORT_H

#include "app/output.h"

#include <stdbool.h>
#include <stdint.h>

struct eval_report_options {
    const char *out;     /* the HTML file; NULL: report.html in the folder, or here for several folders */
    const char *compare; /* "A,B": two policies against each other; NULL = none */
    const char *fail_if; /* a limit (limit.h); NULL = none */
    const char
        *niah_score; /* what maps show (map.h); NULL = the score as text, the usual ones in page and JSON */
    bool json;       /* standard output gets one JSON object in place of the summary */
    bool no_gate;    /* tasks that the full cache cannot solve count as well */
};

/*
 * Reads the folders and writes report.html; for one folder without `out` also summary.txt, summary.csv and, if there are maps by
 * depth and length, maps.csv, next to its results. The summary, or the JSON object, goes to standard output. Returns an exit code: APP_OK; bad input (2) for
 * folders, results or options that cannot be used, in which case nothing is written; 4 if the limit is broken; 1 if
 * memory or the disk is full.
 */
int eval_report_write(char *const *folders, int32_t n, const struct eval_report_options *options);
/* Adds the files that a report reads, which none of its forms may replace. */
void eval_report_inputs(struct app_inputs *inputs, char *const *folders, int32_t n);
/* Checks the options that can be checked before there are results. Returns an exit code. */
int eval_report_check(const struct eval_report_options *options);

#endif
