/* SPDX-License-Identifier: MIT */
#include "base/random.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

/* Hashes whether there is an array, and its bytes. */
static uint64_t add(uint64_t h, const void *x, size_t n, size_t size)
{
    const uint8_t there = x != NULL;
    h = wnw__hash(h, &there, 1);
    return x ? wnw__hash(h, x, n * size) : h;
}

uint64_t wnw__profile_hash(const wnw_profile *p, uint32_t kinds)
{
    uint64_t h = WNW_HASH_START;
    const uint32_t there = p ? p->kinds & kinds : 0;
    if (!there)
        return h;
    const size_t n = (size_t)p->model.n_layer * (size_t)p->model.n_head, d = (size_t)p->model.d;
    const struct wnw__compiler_table *t = &p->compiler;
    if (there >> WNW_PROFILE_SRH & 1u) {
        h = add(h, p->srh_rank, n, sizeof *p->srh_rank);
        h = add(h, p->trad_rank, n, sizeof *p->trad_rank);
        h = add(h, &p->srh_k, 1, sizeof p->srh_k);
    }
    if (there >> WNW_PROFILE_LAYERS & 1u)
        h = add(h, p->layer_share, (size_t)p->model.n_layer, sizeof *p->layer_share);
    if (there >> WNW_PROFILE_GRADIENT & 1u)
        h = add(h, p->layer_gradient, (size_t)p->model.n_layer, sizeof *p->layer_gradient);
    if (there >> WNW_PROFILE_COMPILER & 1u) {
        h = add(h, t->weight, (size_t)t->n_layer * (size_t)p->model.n_head, sizeof *t->weight);
        h = add(h, t->tau, (size_t)t->n_layer * (size_t)t->n_entropy * (size_t)t->n_ppl, sizeof *t->tau);
        h = add(h, t->tau_constant > 0 ? &t->tau_constant : NULL, 1, sizeof t->tau_constant);
    }
    if (there >> WNW_PROFILE_HEADS & 1u) {
        h = add(h, p->head_score, n, sizeof *p->head_score);
        h = add(h, p->head_alpha, (size_t)p->model.n_layer * (size_t)p->model.n_head_kv,
                sizeof *p->head_alpha);
    }
    if (there >> WNW_PROFILE_CURVES & 1u) {
        h = add(h, p->curve_ratio, (size_t)p->n_curve, sizeof *p->curve_ratio);
        h = add(h, p->curve_keep, (size_t)p->n_curve * (size_t)p->model.n_layer * (size_t)p->model.n_head_kv,
                sizeof *p->curve_keep);
    }
    if (there >> WNW_PROFILE_SHARES & 1u) {
        h = add(h, p->best_size, (size_t)p->n_best, sizeof *p->best_size);
        h = add(h, p->best_share, (size_t)p->n_best * (size_t)p->model.n_layer * (size_t)p->model.n_head_kv,
                sizeof *p->best_share);
    }
    if (there >> WNW_PROFILE_QUALITY & 1u) {
        h = add(h, p->quality_dropped, (size_t)p->n_quality, sizeof *p->quality_dropped);
        for (int i = 0; i < WNW_N_QUALITY; i++)
            h = add(h, p->quality_loss[i], (size_t)p->n_quality, sizeof *p->quality_loss[i]);
    }
    if (there >> WNW_PROFILE_GATE & 1u) {
        const size_t n_head = (size_t)p->model.n_layer * (size_t)p->model.n_head_kv;
        h = add(h, p->gate_weight, n_head * (size_t)p->n_gate_feature, sizeof *p->gate_weight);
        h = add(h, p->gate_bias, n_head, sizeof *p->gate_bias);
    }
    if (there >> WNW_PROFILE_INPUTGATE & 1u) {
        const int32_t form = (int32_t)p->inputs.form;
        h = add(h, &form, 1, sizeof form);
        h = add(h, p->inputs.there, (size_t)p->model.n_layer, sizeof *p->inputs.there);
        h = add(h, p->inputs.number,
                (size_t)p->model.n_layer * (size_t)wnw__input_numbers(&p->inputs, &p->model),
                sizeof *p->inputs.number);
    }
    if (there >> WNW_PROFILE_STATS & 1u) {
        h = add(h, p->query_mean, n * d, sizeof *p->query_mean);
        h = add(h, p->query_cov, n * d * d, sizeof *p->query_cov);
        h = add(h, p->query_filter, (size_t)p->model.n_layer * (size_t)p->model.n_head_kv * d,
                sizeof *p->query_filter);
    }
    return h;
}

bool wnw__quality_is_foreign(const wnw_profile *p, int32_t scorer)
{
    const int32_t kind = wnw__quality_scorers[scorer].kind;
    return kind >= 0 && p->quality_of[scorer] != 0 && p->kinds >> kind & 1u &&
           p->quality_of[scorer] != wnw__profile_hash(p, 1u << kind);
}
