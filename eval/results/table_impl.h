/* SPDX-License-Identifier: MIT */
/* What table.c shares with table_cell.c and table_gather.c. */
#ifndef WNW_EVAL_TABLE_IMPL_H
#define WNW_EVAL_TABLE_IMPL_H

#include "eval/results/table.h"

/* The lines of a sample: that of variant a, NULL where it has none, and that of b, NULL where b is -1 or has none. */
struct eval_pair {
    const struct eval_result *a, *b;
    size_t next; /* the line after the sample's; before the first sample the stratum's first */
};
/* Goes on to the next sample of a stratum that both have, or that a has where b is -1; of a group with a bucket only those of the
 * bucket. Returns false after the last. */
bool eval_pair_next(struct eval_pair *p, const struct eval_compared *c, const struct eval_stratum *s);

/* Variant a on a stratum, or on its lines of a group, next to b; interval: false leaves the interval of the difference out, which
 * takes longest. Returns false if memory runs out. */
bool eval_cell_make(struct eval_cell *c, const struct eval_compared *on, bool interval);

/* Finds the groups of a block. Its rows get means over them. */
void eval_groups_find(struct eval_block *b, const struct eval_run *run);
/* Makes a row's means from its cells. Returns false if memory runs out. */
bool eval_means_make(struct eval_row *row, const struct eval_block *b, const struct eval_run *run);

#endif
