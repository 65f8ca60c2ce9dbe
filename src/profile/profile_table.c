/* SPDX-License-Identifier: MIT */
/* What a profile holds, table by table, for people and programs that look at it. */
#include "profile/profile.h"

#include "base/err.h"
#include "winnow_calibrate.h"

#include <string.h>

enum type { I32, F32, F64 };

/* One array of a profile. */
struct row {
    const char *name; /* as in files */
    wnw_profile_kind kind;
    enum type type;
    const void *x; /* NULL = the profile does not have it */
    int32_t n_dim, shape[4];
};

enum { MAX_ROWS = 32 };

/* Lists every table that a profile can have; returns how many. */
static int list(const wnw_profile *p, struct row *rows)
{
    const int32_t L = p->model.n_layer, H = p->model.n_head, G = p->model.n_head_kv, d = p->model.d;
    const int32_t n_input = (int32_t)(p->inputs.number ? wnw__input_numbers(&p->inputs, &p->model) : 0);
    const struct wnw__compiler_table *t = &p->compiler;
    const struct row all[] = {
        {"srh", WNW_PROFILE_SRH, I32, p->srh_rank, 2, {L, H}},
        {"srh_mean", WNW_PROFILE_SRH, F32, p->srh_mean, 2, {L, H}},
        {"trad", WNW_PROFILE_SRH, I32, p->trad_rank, 2, {L, H}},
        {"trad_mean", WNW_PROFILE_SRH, F32, p->trad_mean, 2, {L, H}},
        {"avg_score", WNW_PROFILE_LAYERS, F64, p->layer_share, 1, {L}},
        {"weight", WNW_PROFILE_COMPILER, F32, t->weight, 2, {t->n_layer, H}},
        {"entropy_edges", WNW_PROFILE_COMPILER, F64, t->entropy_edge, 1, {t->n_entropy - 1}},
        {"ppl_edges", WNW_PROFILE_COMPILER, F64, t->ppl_edge, 1, {t->n_ppl - 1}},
        {"tau", WNW_PROFILE_COMPILER, F32, t->tau, 3, {t->n_layer, t->n_entropy, t->n_ppl}},
        {"score", WNW_PROFILE_HEADS, F64, p->head_score, 2, {L, H}},
        {"alpha", WNW_PROFILE_HEADS, F64, p->head_alpha, 2, {L, G}},
        {"query_mean", WNW_PROFILE_STATS, F32, p->query_mean, 3, {L, H, d}},
        {"query_cov", WNW_PROFILE_STATS, F32, p->query_cov, 4, {L, H, d, d}},
        {"filter", WNW_PROFILE_STATS, F32, p->query_filter, 3, {L, G, d}},
        {"ratio", WNW_PROFILE_CURVES, F64, p->curve_ratio, 1, {p->n_curve}},
        {"keep", WNW_PROFILE_CURVES, F32, p->curve_keep, 3, {p->n_curve, L, G}},
        {"size", WNW_PROFILE_SHARES, F64, p->best_size, 1, {p->n_best}},
        {"share", WNW_PROFILE_SHARES, F32, p->best_share, 3, {p->n_best, L, G}},
        {"weight", WNW_PROFILE_GATE, F32, p->gate_weight, 3, {L, G, p->n_gate_feature}},
        {"bias", WNW_PROFILE_GATE, F32, p->gate_bias, 2, {L, G}},
        {"dropped", WNW_PROFILE_QUALITY, F64, p->quality_dropped, 1, {p->n_quality}},
        {"replay", WNW_PROFILE_QUALITY, F64, p->quality_loss[WNW_QUALITY_REPLAY], 1, {p->n_quality}},
        {"kvgate", WNW_PROFILE_QUALITY, F64, p->quality_loss[WNW_QUALITY_KVGATE], 1, {p->n_quality}},
        {"inputgate", WNW_PROFILE_QUALITY, F64, p->quality_loss[WNW_QUALITY_INPUTGATE], 1, {p->n_quality}},
        {"replay_kept", WNW_PROFILE_QUALITY, F64, p->quality_kept[WNW_QUALITY_REPLAY], 1, {p->n_quality}},
        {"kvgate_kept", WNW_PROFILE_QUALITY, F64, p->quality_kept[WNW_QUALITY_KVGATE], 1, {p->n_quality}},
        {"inputgate_kept",
         WNW_PROFILE_QUALITY,
         F64,
         p->quality_kept[WNW_QUALITY_INPUTGATE],
         1,
         {p->n_quality}},
        {"gradient", WNW_PROFILE_GRADIENT, F64, p->layer_gradient, 1, {L}},
        {"layers", WNW_PROFILE_INPUTGATE, F32, p->inputs.number, 3, {L, 1, n_input}},
    };
    _Static_assert(sizeof all / sizeof *all <= MAX_ROWS, "room for every table");
    memcpy(rows, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

/* Whether the profile has the table. What is lost with a scorer's scores does not count where it was measured with other gates than
 * the profile's own; that is asked for no other table, because these gates are hashed for it. */
static bool is_there(const wnw_profile *p, const struct row *r)
{
    const int32_t scorer = r->kind == WNW_PROFILE_QUALITY ? wnw__quality_scorer(r->name) : -1;
    return r->x && (scorer < 0 || !wnw__quality_is_foreign(p, scorer));
}

bool wnw_profile_get_table(const wnw_profile *p, int32_t i, wnw_profile_table *out)
{
    struct row rows[MAX_ROWS];
    if (!p || !out || i < 0 || WNW_SIZED_CHECK(wnw_profile_table, out) != WNW_OK)
        return false;
    const int n = list(p, rows);
    for (int k = 0; k < n; k++) {
        if (!is_there(p, &rows[k]) || i-- > 0)
            continue;
        wnw_profile_table t = {WNW_INIT(wnw_profile_table), .name = rows[k].name, .kind = rows[k].kind,
                               .n_dim = rows[k].n_dim, .is_whole = rows[k].type == I32};
        memcpy(t.shape, rows[k].shape, sizeof t.shape);
        wnw__sized_give(out, &t);
        return true;
    }
    return false;
}

static int64_t size_of(const struct row *r)
{
    int64_t n = 1;
    for (int32_t k = 0; k < r->n_dim; k++)
        n *= r->shape[k];
    return n;
}

static double value(const struct row *r, int64_t i)
{
    switch (r->type) {
    case I32:
        return ((const int32_t *)r->x)[i];
    case F32:
        return (double)((const float *)r->x)[i];
    default:
        return ((const double *)r->x)[i];
    }
}

int wnw_profile_get_values(double *out, int64_t n, const wnw_profile *p, const char *name)
{
    struct row rows[MAX_ROWS];
    WNW_REQUIRE(out);
    WNW_REQUIRE(p);
    WNW_REQUIRE(name);
    const int n_row = list(p, rows);
    for (int k = 0; k < n_row; k++) {
        const struct row *r = &rows[k];
        if (strcmp(r->name, name) != 0 || !is_there(p, r))
            continue;
        if (n != size_of(r))
            return wnw__fail(WNW_E_ARG, "table %s has %lld values, not %lld", name, (long long)size_of(r),
                             (long long)n);
        for (int64_t i = 0; i < n; i++)
            out[i] = value(r, i);
        return WNW_OK;
    }
    return wnw__fail(WNW_E_ARG, "the profile has no table %.40s", name);
}
