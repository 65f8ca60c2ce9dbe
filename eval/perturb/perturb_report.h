/* SPDX-License-Identifier: MIT */
/* The report of a perturbation study, from its folder alone. */
#ifndef WNW_EVAL_PERTURB_REPORT_H
#define WNW_EVAL_PERTURB_REPORT_H

#include "eval/report/report.h"

/* Whether a folder holds a perturbation study: its run.json says so. */
bool eval_perturb_is(const char *folder);

/* Reads run.json and the results, which may be packed, and writes summary.txt, perturbation.csv and report.html beside them, or with
 * options->out the page alone, there. The summary, or with options->json the numbers, go to standard output; the other options are
 * those of runs that ask questions and are refused. Returns an exit code. */
int eval_perturb_report(char *folder, const struct eval_report_options *options);

#endif
