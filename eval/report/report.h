/* SPDX-License-Identifier: MIT */
/* From folders of results to tables, charts and examples: winnow report, and the end of winnow eval. */
#ifndef WNW_EVAL_REPORT_H
#define WNW_EVAL_REPORT_H

#include "app/output.h"
#include "eval/args.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Reads the folders and writes the page to `out`, or where that is NULL to report.html: for one folder next to its results, with
 * summary.txt, summary.csv and, if there are maps by depth and length, maps.csv. The summary, or the JSON object, goes to standard
 * output. The options are those of `winnow report`. Returns an exit code: APP_OK; bad input (2) for folders, results or options that
 * cannot be used, in which case nothing is written; 4 if the limit is broken; 1 if memory or the disk is full.
 */
int eval_report_write(char *const *folders, int32_t n, const struct eval_args *args, const char *out);
/* Adds the files that a report reads, which none of its forms may replace. */
void eval_report_inputs(struct app_inputs *inputs, char *const *folders, int32_t n);
/* Checks the options that can be checked before there are results. Returns an exit code. */
int eval_report_check(const struct eval_args *args);

#endif
