/* SPDX-License-Identifier: MIT */
/* winnow eval --study perturbation: what policies change of the outputs of heads, in place of answers. After the analyses of "CriticalKV"
 * (arXiv 2502.03805), section 5. It is a room of the evaluation that lies beside it; this is what its sub-commands see. */
#ifndef WNW_PERTURB_STUDY_H
#define WNW_PERTURB_STUDY_H

#include "eval/run/suite.h"

/* Measures the texts that are not in the folder yet, then reports it. Returns an exit code. */
int perturb_run(const struct eval_args *args, const struct eval_suite *study);

/* Whether a folder holds a perturbation study: its run.json says so. */
bool perturb_is_study(const char *folder);
/* Reads run.json and the results, which may be packed, and writes summary.txt, perturbation.csv and report.html beside them, or with
 * `out` the page alone, there. The summary, or with --json the numbers, go to standard output; the other options are
 * those of runs that ask questions and are refused. Returns an exit code. */
int perturb_report(char *folder, const struct eval_args *args, const char *out);

#endif
