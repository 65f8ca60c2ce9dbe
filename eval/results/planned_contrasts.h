/* SPDX-License-Identifier: MIT */
/* Primary contrasts of a run: those that its run.json lists, which were written down before it began, measured and corrected for their
 * number. */
#ifndef WNW_EVAL_PLANNED_CONTRASTS_H
#define WNW_EVAL_PLANNED_CONTRASTS_H

#include "eval/base/contrast.h"
#include "eval/results/versus.h"

struct eval_planned_contrast {
    struct eval_contrast contrast;
    bool measured; /* the run has samples that both policies answered; otherwise the next have no numbers */
    struct eval_versus versus;
    double p,
        p_holm; /* of no difference (eval_flip_test), alone and for all contrasts together; what was not measured counts as 1 */
    const char *verdict; /* where p_holm is below 0.05 "+" or "-", whether the first is better; else "~" */
};

/* Measures the contrasts of a run. Returns an exit code: bad input for a line that cannot be read. The caller releases *out with
 * eval_planned_contrasts_free in any case. */
int eval_planned_contrasts_make(struct eval_planned_contrast **out, int32_t *n, const struct eval_tables *t);
void eval_planned_contrasts_free(struct eval_planned_contrast *planned, int32_t n);

#endif
