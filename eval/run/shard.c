/* SPDX-License-Identifier: MIT */
#include "eval/run/shard.h"

#include "app/console.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/base/stats.h"

#include <stdlib.h>
#include <string.h>

int eval_shard_read(struct eval_shard *shard, const char *text)
{
    int64_t i = 1, n = 1;
    if (text) {
        char *copy = strdup(text), *slash = copy ? strchr(copy, '/') : NULL;
        if (slash)
            *slash = '\0';
        const bool good = slash && app_parse_int(&i, copy) && app_parse_int(&n, slash + 1) && i >= 1 &&
                          i <= n && n <= INT32_MAX;
        free(copy);
        if (!good)
            return app_fail(APP_BAD_INPUT, "--shard '%s': give I/N, whole numbers with 1 <= I <= N", text);
    }
    *shard = (struct eval_shard){.i = (int32_t)i - 1, .n = (int32_t)n};
    return APP_OK;
}

int32_t eval_shard_index(const struct eval_item *item, int32_t n_depths, bool probe, int32_t k)
{
    if (!(item->task->flags & EVAL_ON_GRID))
        return probe ? EVAL_GATE_FIRST + k : k;
    /* The depth of a sample on a grid is that of its index, so probes begin with a whole grid, and go on with another. */
    const int32_t n_cells = n_depths * item->n_trials;
    const int32_t first = probe ? (EVAL_GATE_FIRST + n_cells - 1) / n_cells * n_cells : 0;
    return first + k / n_cells * n_cells + eval_grid_index(n_depths, item->n_trials, k % n_cells);
}

/* Visits the probes or the samples. *ordinal counts all that were planned, of all shards. */
static int each_of(const struct eval_shard *shard, struct eval_items *items, bool probes, int64_t *ordinal,
                   eval_visit *visit, void *user)
{
    bool more = true;
    for (int32_t k = 0; more; k++) {
        more = false;
        for (int32_t i = 0; i < items->n; i++) {
            struct eval_item *item = &items->items[i];
            if (k >= (probes ? item->planned.n_probes : item->planned.n))
                continue;
            more = true;
            const bool here = (*ordinal)++ % shard->n == shard->i;
            if (here && k < (probes ? item->n_probes : item->n))
                WNW_TRY(visit(user, item, eval_shard_index(item, items->depths.n, probes, k)));
        }
    }
    return APP_OK;
}

int eval_shard_each(const struct eval_shard *shard, struct eval_items *items, eval_visit *visit, void *user)
{
    int64_t ordinal = 0;
    WNW_TRY(each_of(shard, items, true, &ordinal, visit, user));
    return each_of(shard, items, false, &ordinal, visit, user);
}
