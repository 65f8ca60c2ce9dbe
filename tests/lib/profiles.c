/* SPDX-License-Identifier: MIT */
#include "profiles.h"

#include "peek_plan.h"
#include "random.h"
#include "winnow_calibrate.h"

#include <stdlib.h>

static float *random_floats(size_t n, uint64_t *state)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(test_random(state) >> 40) * 0x1p-24f;
    return x;
}

static double *random_doubles(size_t n, uint64_t *state)
{
    double *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(test_random(state) >> 11) * 0x1p-53;
    return x;
}

wnw_profile *test_profile_of_all_kinds(const wnw_model *m)
{
    wnw_profile *p;
    uint64_t state = 7;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    assert_ok(wnw_profile_new(&p, m));
    const size_t n_layer = (size_t)p->model.n_layer, n_head = (size_t)p->model.n_head, d = (size_t)p->model.d;
    double sum = 0;
    p->kinds = (1u << WNW_N_PROFILE_KINDS) - 1;
    p->srh_rank = malloc(n_layer * n_head * sizeof *p->srh_rank);
    p->trad_rank = malloc(n_layer * n_head * sizeof *p->trad_rank);
    assert_non_null(p->srh_rank);
    assert_non_null(p->trad_rank);
    for (size_t i = 0; i < n_layer * n_head; i++) {
        p->srh_rank[i] = (int32_t)(i % n_head);
        p->trad_rank[i] = (int32_t)(n_head - 1 - i % n_head);
    }
    p->srh_mean = random_floats(n_layer * n_head, &state);
    p->trad_mean = random_floats(n_layer * n_head, &state);
    p->layer_share = random_doubles(n_layer, &state);
    for (size_t i = 0; i < n_layer; i++)
        sum += p->layer_share[i];
    for (size_t i = 0; i < n_layer; i++)
        p->layer_share[i] /= sum;
    p->layer_gradient = random_doubles(n_layer, &state);
    p->head_score = random_doubles(n_layer * n_head, &state);
    p->head_alpha = random_doubles(n_layer * (size_t)p->model.n_head_kv, &state);
    p->compiler = (struct wnw__compiler_table){.n_layer = p->model.n_layer,
                                               .alpha_scope = -1,
                                               .score_norm = -1,
                                               .gate = -1,
                                               .entropy_norm = -1,
                                               .n_entropy = 2,
                                               .n_ppl = 2,
                                               .entropy_edge = random_doubles(1, &state),
                                               .ppl_edge = random_doubles(1, &state),
                                               .weight = random_floats(n_layer * n_head, &state),
                                               .tau = random_floats(n_layer * 4, &state)};
    p->query_mean = random_floats(n_layer * n_head * d, &state);
    p->query_cov = calloc(n_layer * n_head * d * d, sizeof *p->query_cov);
    assert_non_null(p->query_cov);
    for (size_t i = 0; i < n_layer * n_head * d; i++)
        p->query_cov[i * d + i % d] = 0.1f;
    p->query_filter = random_floats(n_layer * (size_t)p->model.n_head_kv * d, &state);
    p->n_curve = 1;
    p->curve_ratio = random_doubles(1, &state);
    p->curve_ratio[0] = 0.2 + 0.6 * p->curve_ratio[0];
    p->curve_keep = random_floats(n_layer * (size_t)p->model.n_head_kv, &state);
    p->n_gate_feature = wnw__gate_all(p->model.d);
    p->gate_weight = random_floats(n_layer * (size_t)p->model.n_head_kv * (size_t)p->n_gate_feature, &state);
    p->gate_bias = random_floats(n_layer * (size_t)p->model.n_head_kv, &state);
    p->inputs = (struct wnw__input_gate){.form = WNW_INPUT_LINEAR, .n_embd = info.n_embd};
    assert_ok(wnw__input_gate_new(&p->inputs, &p->model));
    for (int64_t i = 0; i < wnw__input_numbers(&p->inputs, &p->model) * p->model.n_layer; i++)
        p->inputs.number[i] = (float)(test_random(&state) >> 40) * 0x1p-24f - 0.5f;
    for (size_t il = 0; il < n_layer; il++)
        p->inputs.there[il] = true;
    p->n_quality = 1;
    p->quality_dropped = random_doubles(1, &state);
    for (int i = 0; i < WNW_N_QUALITY; i++)
        p->quality_loss[i] = random_doubles(1, &state);
    for (int i = 0; i < WNW_N_QUALITY; i++)
        p->quality_kept[i] = random_doubles(1, &state);
    p->n_best = 1;
    p->best_size = random_doubles(1, &state);
    p->best_size[0] = 0.001;
    p->best_share = random_floats(n_layer * (size_t)p->model.n_head_kv, &state);
    return p;
}
