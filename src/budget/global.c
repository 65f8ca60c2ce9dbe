/* SPDX-License-Identifier: MIT */
/*
 * One pool of scores over all layers and heads: the best entries of the whole model stay, and a head's count
 * is the number of them that it holds. KVzip's default ("KVzip: Query-Agnostic KV Cache Compression with
 * Context Reconstruction", arXiv 2505.23416) and KVCompose's unstructured form (arXiv 2509.05165) do so.
 * pool=layer keeps the competition inside each layer.
 *
 *     B = floor((1 - r) L H n)           count=kept
 *     B = L H n - floor(r L H n)         count=removed, as kvpress' KVzip counts
 * Equal scores are ordered by lower layer, lower head, lower position. KVzip's code keeps the entries that
 * lie strictly above the score at the cut, and so at least one entry less; here the count is exact.
 * min_tokens is the number of best entries that every head keeps, as far as B allows. Protected entries stay
 * and count. Cost O(L H n).
 */
#include "base/clamp.h"
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

enum count { COUNT_KEPT, COUNT_REMOVED };
enum pool { POOL_MODEL, POOL_LAYER };

struct opts {
    int32_t min_tokens;
    int32_t count;
    int32_t pool;
};

/* The number of entries that the n_row heads from row `first` on keep together. */
static int64_t total_of(const struct opts *o, const wnw_layer_problem *p, int32_t first, int32_t n_row)
{
    const int32_t *n_entry = p->n_entry + first;
    int64_t sum = 0;
    for (int32_t r = 0; r < n_row; r++)
        sum += n_entry[r];
    if (o->count == COUNT_REMOVED && p->ratio > 0)
        return sum - wnw__round_count((double)sum * p->ratio, p->rounding);
    return wnw__count_together(p, n_entry, n_row);
}

/* Row r = layer r / n_head_kv, head r % n_head_kv. */
static wnw_protected protected_of(const wnw_layer_problem *p, int32_t r)
{
    return wnw__protected_shrink(p->prot[r], p->budget);
}

/* Shares out the entries that rows first .. first + n_row - 1 keep together. */
static void share_out(const struct opts *o, const wnw_layer_problem *p, int32_t first, int32_t n_row,
                      int32_t *n_keep, float *flat)
{
    int64_t left = total_of(o, p, first, n_row), n_flat = 0;
    const int64_t affordable = left / n_row;
    for (int32_t r = first; r < first + n_row; r++) {
        const wnw_protected prot = protected_of(p, r);
        const int32_t n_prot = prot.n_first + prot.n_last;
        int64_t sure = o->min_tokens < affordable ? o->min_tokens : affordable;
        sure = sure > n_prot ? sure : n_prot;
        sure = sure < p->n_entry[r] ? sure : p->n_entry[r];
        n_keep[r] = (int32_t)sure;
        left -= sure;
        n_flat += wnw__candidates(p->score[r / p->n_head_kv] +
                                      (int64_t)(r % p->n_head_kv) * p->row[r / p->n_head_kv],
                                  p->n_entry[r], prot, n_keep[r] - n_prot, flat + n_flat);
    }
    left = wnw__clamp(left, 0, n_flat);
    struct wnw__cut cut = wnw__topk_cut(flat, n_flat, left);
    for (int32_t r = first; r < first + n_row; r++)
        for (int32_t k = p->n_entry[r] - n_keep[r]; k > 0; k--)
            n_keep[r] += wnw__cut_take(&cut, *flat++);
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    const int32_t n_row = p->n_layer * p->n_head_kv;
    const int32_t step = o->pool == POOL_LAYER ? p->n_head_kv : n_row;
    (void)warning;
    for (int32_t first = 0; first < n_row; first += step)
        share_out(o, p, first, step, n_keep, scratch);
    return WNW_OK;
}

static const char *const counts[] = {"kept", "removed", NULL};
static const char *const pools[] = {"model", "layer", NULL};

static const wnw_option options[] = {
    {.name = "min_tokens",
     .help = "entries that every head keeps",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, min_tokens),
     .def = 1,
     .min = 0,
     .max = 65536},
    {.name = "count",
     .help = "which number is rounded down where a ratio is given: entries kept, or removed (kvpress' KVzip)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, count),
     .def = COUNT_KEPT,
     .choices = counts},
    {.name = "pool",
     .help = "who competes: heads of the whole model, or of each layer",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, pool),
     .def = POOL_MODEL,
     .choices = pools},
    {0}};

const wnw_head_budget wnw__head_budget_global = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "global",
         .about = "The best scores of all layers and heads in one pool; every head keeps what is its own.",
         .paper = "KVzip, arXiv 2505.23416",
         .details =
             "`B = floor((1-r) L H n)` of the `L H n` scores stay; equal ones in the order of layer, "
             "head, "
             "position. "
             "`count=removed` rounds the number of removed entries down instead, as kvpress does for "
             "KVzip. "
             "`pool=layer` fixes the count of every layer, so that only its heads compete.\n\n"
             "`min_tokens=1` keeps a head from losing everything; neither KVzip nor KVCompose has such a "
             "floor. "
             "KVzip's code keeps scores strictly above the one at the cut, so it keeps at least one entry "
             "less.\n\n"
             "`O(L H n)`.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES},
    .allocate_model = allocate_model,
};
