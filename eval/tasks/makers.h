/* SPDX-License-Identifier: MIT */
/* What makes the samples of tasks: eval_make_NAME for each maker in eval/base/tasks.def, and what some of them are given. */
#ifndef WNW_EVAL_MAKERS_H
#define WNW_EVAL_MAKERS_H

#include "eval/tasks/draws.h"
#include "eval/tasks/task.h"

/* Of RULER's needles: what they are hidden in, the kinds of keys and values, and how many there are. */
enum eval_hay { EVAL_IN_NOISE, EVAL_IN_TEXT, EVAL_IN_NEEDLES };
struct eval_niah {
    enum eval_hay hay;
    enum eval_value key, value;
    int32_t n_keys, n_values, n_queries;
};

/* niah_grid: tokens of a length that are neither text nor needle. */
enum { EVAL_GRID_RESERVE = 200 };

#define TASK(name, group, domain, kind, metric, max_new, least, flags, maker, ...) \
    int eval_make_##maker(struct eval_sample *s, struct eval_draft *d);
#define SET(name, group, domain, kind, metric, max_new, flags, maker, ...) \
    int eval_make_##maker(struct eval_sample *s, struct eval_draft *d);
#include "eval/base/tasks.def"
#undef TASK
#undef SET

#endif
