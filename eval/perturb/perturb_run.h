/* SPDX-License-Identifier: MIT */
/* winnow eval --study perturbation: the analyses of "CriticalKV" (arXiv 2502.03805), section 5. */
#ifndef WNW_EVAL_PERTURB_RUN_H
#define WNW_EVAL_PERTURB_RUN_H

#include "eval/run/suite.h"

/* Returns an exit code. */
int eval_run_perturbation(const struct eval_args *args, const struct eval_suite *study);

#endif
