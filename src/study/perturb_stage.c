/* SPDX-License-Identifier: MIT */
/* The first stage that a policy with the selector `critical` took: a plan is made once more, and its scores are noted. The
 * best by them of what each head kept are the first stage, because it chooses before the second one. */
#include "base/topk.h"
#include "method/count.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "session/planning/planning.h"
#include "session/session.h"
#include "study/perturb.h"

#include <stdlib.h>
#include <string.h>

void wnw__perturb_mark_stage(bool *mark, const struct wnw__stage_one *s, float *value)
{
    int32_t n_sure = 0, m = 0;
    memset(mark, 0, (size_t)s->n * sizeof *mark);
    for (int32_t k = 0; k < s->n_kept; k++) {
        const int32_t i = s->kept[k];
        mark[i] = i < s->prot.n_first || i >= s->n - s->prot.n_last || i < s->sinks;
        n_sure += mark[i];
    }
    for (int32_t k = 0; k < s->n_kept; k++)
        if (!mark[s->kept[k]])
            value[m++] = s->score[s->kept[k]];
    struct wnw__cut cut = wnw__topk_cut(value, m, s->n_first > n_sure ? s->n_first - n_sure : 0);
    for (int32_t k = 0; k < s->n_kept; k++)
        if (!mark[s->kept[k]])
            mark[s->kept[k]] = wnw__cut_take(&cut, s->score[s->kept[k]]);
}

/* A source of observations that notes scores. */
struct noting {
    struct wnw__plan_source src; /* the first member: what the driver is given */
    float *score;                /* [n_layer][n_head_kv][n] */
    wnw_protected *prot;         /* [n_layer][n_head_kv] */
    int32_t n;
};

static int take_scores(const struct wnw__plan_source *src, int32_t il, int32_t ih, const float *score,
                       int32_t n, wnw_protected prot)
{
    const struct noting *x = (const struct noting *)src;
    const size_t row = (size_t)il * (size_t)x->src.shape.n_head_kv + (size_t)ih;
    if (n != x->n)
        return wnw__fail(WNW_E_ARG, "a head has %d of %d entries; the first stage is of a whole cache",
                         (int)n, (int)x->n);
    memcpy(x->score + row * (size_t)n, score, (size_t)n * sizeof *score);
    x->prot[row] = prot;
    return WNW_OK;
}

static int mark_all(bool *stage, const struct noting *x, const wnw_policy *policy, const wnw_plan *plan,
                    const struct wnw__first_stage *first)
{
    float *value = malloc(((size_t)x->n + 1) * sizeof *value);
    const int32_t n_head = x->src.shape.n_head_kv;
    if (!value)
        return wnw__fail(WNW_E_NOMEM, "no memory for the first stage of %d entries", (int)x->n);
    for (int32_t row = 0; row < x->src.shape.n_layer * n_head; row++) {
        const size_t at = (size_t)row * (size_t)x->n;
        const int32_t il = row / n_head, *kept;
        const int32_t n_kept = wnw_plan_head(plan, il, row % n_head, &kept);
        if (!wnw__layer_takes_part(&x->src.shape, il))
            continue;
        wnw__perturb_mark_stage(
            stage + at,
            &(struct wnw__stage_one){.score = x->score + at,
                                     .n = x->n,
                                     .kept = kept,
                                     .n_kept = n_kept,
                                     .n_first = wnw__round_count(n_kept * first->alpha, policy->rounding),
                                     .sinks = first->sinks,
                                     .prot = x->prot[row]},
            value);
    }
    free(value);
    return WNW_OK;
}

/* The caller frees *plan in any case. */
static int plan_and_mark(bool *stage, struct noting *x, wnw_plan **plan, const wnw_policy *policy,
                         const wnw_size *size, const struct wnw__first_stage *first)
{
    WNW_TRY(wnw__plan_make(plan, policy, size, &x->src, NULL));
    return mark_all(stage, x, policy, *plan, first);
}

int wnw__perturb_stage_one(bool *stage, wnw_session *s, const wnw_policy *policy, const wnw_size *size,
                           const struct wnw__first_stage *first)
{
    const size_t n_row = (size_t)s->cache.n_layer * (size_t)s->cache.n_head_kv, n = (size_t)s->n_past;
    struct noting x = {.score = calloc(n_row * n + 1, sizeof *x.score),
                       .prot = calloc(n_row + 1, sizeof *x.prot),
                       .n = s->n_past};
    wnw_plan *plan = NULL;
    memset(stage, 0, n_row * n * sizeof *stage);
    int rc =
        x.score && x.prot ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the scores of %zu heads", n_row);
    if (rc == WNW_OK) {
        rc = wnw__session_source(&x.src, s);
        x.src.scored = take_scores;
        if (rc == WNW_OK)
            rc = plan_and_mark(stage, &x, &plan, policy, size, first);
        wnw__source_close(&x.src);
    }
    wnw_plan_free(plan);
    free(x.score);
    free(x.prot);
    return rc;
}
