/* SPDX-License-Identifier: MIT */
/* What table.c and table_cell.c share. */
#ifndef WNW_EVAL_TABLE_IMPL_H
#define WNW_EVAL_TABLE_IMPL_H

#include "eval/table.h"

/* A cell without samples. */
struct eval_cell eval_cell_empty(void);
/* A variant on a stratum; baseline is -1 where there is no full cache. Returns false if memory runs out. */
bool eval_cell_make(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                    int32_t variant, int32_t baseline);

#endif
