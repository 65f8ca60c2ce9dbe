/* SPDX-License-Identifier: MIT */
/* winnow eval --study perturbation: measures how policies change the outputs of heads, not answers. After the analyses of "CriticalKV"
 * (arXiv 2502.03805), section 5. It is part of the evaluation with a folder of its own; the sub-commands of `eval` include this header. */
#ifndef WNW_PERTURB_STUDY_H
#define WNW_PERTURB_STUDY_H

#include "eval/run/suite.h"

/* Measures the texts that are not in the folder yet, then reports it. Returns an exit code. */
int perturb_run(const struct eval_args *args, const struct eval_suite *study);

/* Whether a folder holds a perturbation study: its run.json says so. */
bool perturb_is_study(const char *folder);
/* Reads run.json and the results, which may be packed, and writes summary.txt, perturbation.csv and report.html next to them. With
 * `out` it writes only the page, to that path. Standard output gets the summary, or the numbers with --json. Options of runs
 * that ask questions are refused. Returns an exit code. */
int perturb_report(char *folder, const struct eval_args *args, const char *out);

#endif
