/* SPDX-License-Identifier: MIT */
/* Head budgets that read a profile of shares. */
#ifndef WNW_BUDGET_SHARES_H
#define WNW_BUDGET_SHARES_H

#include "winnow_method.h"

/* `needs` of such a part. */
void wnw__shares_needs(const void *opts, wnw_needs *out);

/* Fills n_keep[n_layer][n_head_kv] by the shares of p->profile. other[n_layer * n_head_kv] has for each head the number of the one whose
 * shares it takes, NULL its own. scratch[n_layer * n_head_kv]. E_MISMATCH: the profile is not of this model. E_RANGE: the size is below
 * those that were measured. */
int wnw__shares_allocate(const wnw_layer_problem *p, const float *other, int32_t *n_keep, float *scratch);

#endif
