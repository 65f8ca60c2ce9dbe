/* SPDX-License-Identifier: MIT */
/* The predicted change of a token by a plan, on tiny models, compared with sessions whose entries are really removed. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 90, KEEP = 20, MOST_LAYERS = 16, MOST_HEADS = 16, MOST_EMBD = 512 };

static const struct row {
    const char *name, *arch;
} rows[] = {{"llama", "llama"}, {"qwen2", "qwen2"}, {"gemma3, with sliding windows", "gemma3"}};

struct fixture {
    struct test_model t;
    wnw_session *s;
    wnw_plan *plan, *whole;
    struct wnw__perturb_token *at_token;
    int32_t token;
};

static void open_row(struct fixture *fx, const struct row *row)
{
    const struct test_session want = {.kv_type = WNW_KV_F32, .n_ctx = N_PROMPT + 8, .n_threads = 1};
    wnw_policy *policy = test_policy("snapkv:window=8+adakv"), *full = test_policy("full");
    const wnw_policy *const policies[] = {policy, full};
    const wnw_size sizes[] = {size_budget(KEEP), size_ratio(0)};
    wnw_plan *plans[2];
    test_open_tiny(&fx->t, row->arch, N_PROMPT + 1, 7);
    assert_cmp(fx->t.info.n_layer, <=, MOST_LAYERS);
    assert_cmp(fx->t.info.n_head, <=, MOST_HEADS);
    assert_cmp(fx->t.info.n_embd, <=, MOST_EMBD);
    fx->s = test_session_new(fx->t.m, &want);
    assert_ok(test_observe(fx->s, policies, 2));
    test_prefill(fx->s, fx->t.tokens, N_PROMPT);
    assert_ok(wnw_session_plan_many(fx->s, policies, sizes, 2, plans, NULL));
    fx->plan = plans[0];
    fx->whole = plans[1];
    fx->token = fx->t.tokens[N_PROMPT];
    assert_ok(wnw__perturb_token_new(&fx->at_token, fx->s, fx->token));
    wnw_policy_free(policy);
    wnw_policy_free(full);
}

static void close_row(struct fixture *fx)
{
    wnw__perturb_token_free(fx->at_token);
    wnw_plan_free(fx->plan);
    wnw_plan_free(fx->whole);
    wnw_session_free(fx->s);
    test_close(&fx->t);
}

/* The outputs [n_head][d] of the heads of layer il for the token, read after the plan's entries (NULL = all). */
static wnw_session *read_behind(const struct fixture *fx, const wnw_plan *plan)
{
    wnw_session *s;
    assert_ok(wnw_session_copy(&s, fx->s));
    assert_ok(test_observe(s, NULL, 0));
    assert_ok(wnw__session_record(s, "outputs", true));
    assert_ok(wnw__session_record(s, "states", true));
    if (plan)
        assert_ok(wnw_session_apply(s, plan, NULL));
    assert_ok(wnw_session_decode(s, fx->token));
    return s;
}

static const float *outputs_of(const wnw_session *s, int32_t il)
{
    const float *out;
    wnw__outputs_of(wnw__recorders_find(&s->recorders, &wnw__outputs_recorder), il, &out);
    assert_non_null(out);
    return out;
}

static const float *state_of(const wnw_session *s, int32_t il)
{
    const float *row = wnw__states_of(wnw__recorders_find(&s->recorders, &wnw__states_recorder), il);
    assert_non_null(row);
    return row;
}

/* ||sum over heads from .. to - 1 of (a_h - b_h) W_O^h||_1 in double precision. */
static double norm_of_change(const struct fixture *fx, int32_t il, const float *a, const float *b,
                             int32_t from, int32_t to)
{
    const struct ggml_tensor *w = wnw__model_original(fx->t.m, fx->t.m->layers[il].wo);
    const int32_t d = fx->t.info.n_embd_head;
    double norm = 0;
    assert_int_equal(w->type, GGML_TYPE_F32);
    for (int64_t o = 0; o < w->ne[1]; o++) {
        const float *row = (const float *)w->data + o * w->ne[0];
        double sum = 0;
        for (int32_t i = from * d; i < to * d; i++)
            sum += (double)row[i] * ((double)a[i] - (double)b[i]);
        norm += fabs(sum);
    }
    return norm;
}

/* Heads, groups and layers against sessions that lack the entries in one layer. */
static void as_if_entries_were_gone(void **state)
{
    struct fixture fx;
    open_row(&fx, *state);
    const int32_t n_head = fx.t.info.n_head, n_kv = fx.t.info.n_head_kv, group = n_head / n_kv;
    double heads[MOST_LAYERS * MOST_HEADS], groups[MOST_LAYERS * MOST_HEADS], layers[MOST_LAYERS];
    wnw_session *all = read_behind(&fx, NULL);
    int32_t n_moved = 0;
    assert_ok(wnw__perturb_token_change(fx.at_token, fx.plan, heads, groups, layers));
    for (int32_t il = 0; il < fx.t.info.n_layer; il++) {
        if (wnw_model_layer_is_swa(fx.t.m, il)) {
            assert_near(layers[il], 0, 0);
            assert_near(heads[il * n_head], 0, 0);
            continue;
        }
        wnw_plan *of_layer = test_plan_of_layer(fx.s, fx.plan, il);
        wnw_session *gone = read_behind(&fx, of_layer);
        const float *a = outputs_of(gone, il), *b = outputs_of(all, il);
        for (int32_t h = 0; h < n_head; h++) {
            const double want = norm_of_change(&fx, il, a, b, h, h + 1);
            assert_near(heads[il * n_head + h], want,
                        test_rounding(1e-5, 2) + test_rounding(1e-4, 16) * want);
            n_moved += want > 1e-3;
        }
        for (int32_t ih = 0; ih < n_kv; ih++) {
            const double want = norm_of_change(&fx, il, a, b, ih * group, (ih + 1) * group);
            assert_near(groups[il * n_kv + ih], want,
                        test_rounding(1e-5, 2) + test_rounding(1e-4, 16) * want);
        }
        const double want = norm_of_change(&fx, il, a, b, 0, n_head);
        assert_near(layers[il], want, test_rounding(1e-5, 2) + test_rounding(1e-4, 16) * want);
        wnw_session_free(gone);
        wnw_plan_free(of_layer);
    }
    assert_cmp(n_moved, >, 0); /* there are changes to compare */
    wnw_session_free(all);
    close_row(&fx);
}

/* States after layers, recorded in one pass, against passes through one layer each; and how far they move. */
static void states_move(void **state)
{
    struct fixture fx;
    float x[MOST_EMBD];
    double drift[MOST_LAYERS];
    open_row(&fx, *state);
    const int32_t n_embd = fx.t.info.n_embd, n_layer = fx.t.info.n_layer;
    wnw_session *all = read_behind(&fx, NULL), *gone = read_behind(&fx, fx.plan), *by_layer;
    assert_ok(wnw_session_copy(&by_layer, fx.s));
    for (int32_t il = 0; il + 1 < n_layer; il++) {
        const struct wnw__span span = {
            .from = il, .to = il + 1, .tokens = &fx.token, .x = x, .n = 1, .n_out = 1};
        assert_ok(wnw__feed_span(by_layer, &span));
        assert_cmp(test_relative_error(state_of(all, il), x, (size_t)n_embd), <, test_rounding(1e-5, 8));
    }
    assert_ok(wnw__perturb_token_drift(fx.at_token, fx.plan, drift));
    for (int32_t il = 0; il < n_layer; il++) {
        double want = 0;
        for (int32_t c = 0; c < n_embd; c++)
            want += fabs((double)state_of(gone, il)[c] - (double)state_of(all, il)[c]);
        assert_near(drift[il], want / n_embd, 1e-9 + 1e-6 * want);
    }
    assert_cmp(drift[n_layer - 1], >, 0);
    wnw_session_free(by_layer);
    wnw_session_free(gone);
    wnw_session_free(all);
    close_row(&fx);
}

/* Nothing changes where everything stays, and the session is as it was. */
static void nothing_changes(void **state)
{
    struct fixture fx;
    double heads[MOST_LAYERS * MOST_HEADS], groups[MOST_LAYERS * MOST_HEADS], drift[MOST_LAYERS];
    struct wnw__perturb_bound bounds[MOST_LAYERS * MOST_HEADS];
    open_row(&fx, *state);
    const int32_t n = fx.t.info.n_layer * fx.t.info.n_head;
    assert_ok(wnw__perturb_token_change(fx.at_token, fx.whole, heads, groups, NULL));
    assert_ok(wnw__perturb_token_drift(fx.at_token, fx.whole, drift));
    assert_ok(wnw__perturb_token_bounds(fx.at_token, N_PROMPT + 1, bounds));
    for (int32_t i = 0; i < n; i++) {
        assert_near(heads[i], 0, 0);
        assert_near(bounds[i].change, 0, 0);
    }
    for (int32_t il = 0; il < fx.t.info.n_layer; il++)
        assert_near(drift[il], 0, 0);
    assert_int_equal(wnw_session_n_past(fx.s), N_PROMPT);
    close_row(&fx);
}

static void bounds_are_in_order(void **state)
{
    struct fixture fx;
    struct wnw__perturb_bound bounds[MOST_LAYERS * MOST_HEADS];
    int32_t n_checked = 0;
    open_row(&fx, *state);
    for (int32_t keep = 2; keep <= N_PROMPT; keep += 22) {
        assert_ok(wnw__perturb_token_bounds(fx.at_token, keep, bounds));
        for (int32_t i = 0; i < fx.t.info.n_layer * fx.t.info.n_head; i++) {
            const struct wnw__perturb_bound b = bounds[i];
            assert_cmp(b.change, <=, b.theta_hat * (1 + 1e-4));
            if (b.sigma_first <= 0.5)
                continue;
            assert_cmp(b.theta_hat, <=, b.theta_hat_attention * (1 + 1e-6));
            assert_cmp(b.theta_hat_attention, <=, b.theta_relax * (1 + 1e-6));
            n_checked++;
        }
    }
    assert_cmp(n_checked, >, 0);
    close_row(&fx);
}

/* With the same count in every head, the first stage of half of the entries is what plain selection keeps at half of the size. All
 * entries together have all of the attention. */
static void stage_one_is_half(void **state)
{
    const struct row *row = *state;
    struct fixture fx;
    open_row(&fx, row);
    const struct wnw__first_stage first = {.alpha = 0.5};
    const wnw_model_info *info = &fx.t.info;
    const size_t n_row = (size_t)info->n_layer * (size_t)info->n_head_kv;
    const struct test_session want = {.kv_type = WNW_KV_F32, .n_ctx = N_PROMPT + 8, .n_threads = 1};
    wnw_policy *critical = test_policy("snapkv:window=8+critical:alpha=0.5,sinks=0"),
               *plain = test_policy("snapkv:window=8");
    const wnw_policy *const policies[] = {critical, plain};
    const wnw_size size = size_budget(24), half = size_budget(12);
    wnw_session *s = test_session_new(fx.t.m, &want);
    wnw_plan *plan;
    assert_ok(test_observe(s, policies, 2));
    test_prefill(s, fx.t.tokens, N_PROMPT);
    assert_ok(wnw_session_plan(s, plain, &half, &plan, NULL));
    bool *stage = malloc(n_row * N_PROMPT);
    double mass[MOST_LAYERS * MOST_HEADS];
    assert_ok(wnw__perturb_stage_one(stage, s, critical, &size, &first));
    for (int32_t i = 0; i < (int32_t)n_row; i++) {
        const int32_t il = i / info->n_head_kv, *kept;
        const int32_t n = wnw_plan_head(plan, il, i % info->n_head_kv, &kept);
        int32_t n_marked = 0;
        for (int32_t k = 0; k < N_PROMPT; k++)
            n_marked += stage[i * N_PROMPT + k];
        assert_int_equal(n_marked, wnw_model_layer_is_swa(fx.t.m, il) ? 0 : n);
        for (int32_t k = 0; k < n_marked; k++)
            assert_true(stage[i * N_PROMPT + kept[k]]);
    }
    memset(stage, 1, n_row * N_PROMPT);
    assert_ok(wnw__perturb_token_mass(fx.at_token, stage, mass));
    for (int32_t i = 0; i < info->n_layer * info->n_head; i++)
        assert_near(mass[i], wnw_model_layer_is_swa(fx.t.m, i / info->n_head) ? 0 : 1, 1e-5);
    memset(stage, 0, n_row * N_PROMPT);
    assert_ok(wnw__perturb_token_mass(fx.at_token, stage, mass));
    for (int32_t i = 0; i < info->n_head; i++) /* its own entry stays */
        assert_true(wnw_model_layer_is_swa(fx.t.m, 0) || (mass[i] > 0 && mass[i] < 1));
    free(stage);
    wnw_plan_free(plan);
    wnw_session_free(s);
    wnw_policy_free(critical);
    wnw_policy_free(plain);
    close_row(&fx);
}

static void refuses(void **state)
{
    struct fixture fx;
    struct wnw__perturb_token *at_token;
    struct wnw__perturb_bound bounds[MOST_LAYERS * MOST_HEADS];
    double drift[MOST_LAYERS];
    (void)state;
    open_row(&fx, &rows[0]);
    assert_error(wnw__perturb_token_new(&at_token, fx.s, -1), WNW_E_RANGE);
    assert_null(at_token);
    assert_error(wnw__perturb_token_bounds(fx.at_token, 1, bounds), WNW_E_RANGE);
    assert_error(wnw__perturb_token_bounds(fx.at_token, N_PROMPT + 2, bounds), WNW_E_RANGE);
    /* A plan of a shorter text, and one that merges values. */
    const wnw_size size = size_budget(KEEP);
    wnw_policy *policy = test_policy("snapkv:window=8+merge");
    const wnw_policy *const policies[] = {policy};
    wnw_plan *plan;
    wnw_session *s = test_session_new(
        fx.t.m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = N_PROMPT, .n_threads = 1});
    assert_error(wnw__perturb_token_new(&at_token, s, 1), WNW_E_ARG);
    assert_ok(test_observe(s, policies, 1));
    test_prefill(s, fx.t.tokens, N_PROMPT - 5);
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    assert_error(wnw__perturb_token_change(fx.at_token, plan, drift, NULL, NULL), WNW_E_MISMATCH);
    assert_error(wnw__perturb_token_drift(fx.at_token, plan, drift), WNW_E_MISMATCH);
    struct wnw__perturb_token *shorter;
    assert_ok(wnw__perturb_token_new(&shorter, s, 1));
    assert_error(wnw__perturb_token_change(shorter, plan, NULL, NULL, drift), WNW_E_UNSUPPORTED);
    wnw__perturb_token_free(shorter);
    assert_ok(wnw_session_apply(s, plan, NULL));
    assert_error(wnw__perturb_token_new(&at_token, s, 1), WNW_E_ARG);
    assert_says("whole cache");
    wnw_plan_free(plan);
    wnw_policy_free(policy);
    wnw_session_free(s);
    close_row(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses)};
    return run_rows(as_if_entries_were_gone, rows) + run_rows(states_move, rows) +
           run_rows(nothing_changes, rows) + run_rows(bounds_are_in_order, rows) +
           run_rows(stage_one_is_half, rows) + cmocka_run_group_tests(tests, NULL, NULL);
}
