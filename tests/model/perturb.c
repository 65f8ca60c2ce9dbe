/* SPDX-License-Identifier: MIT */
/*
 * CriticalKV's bounds on a real model: attention of the token that is read after the prompt, its values
 * after the output projection, and what SnapKV evicts with and without CriticalKV. The bounds must hold in
 * every head. How far the output moves is printed only: the paper finds it lower in about nine heads of ten
 * on its models, but nothing guarantees it.
 */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "smollm2-135m-f32.gguf"
enum { LAYER_STEP = 3, MAX_N = 640, MAX_D = 64, MAX_OUT = 576 };

struct fixture {
    wnw_model *model;
    wnw_session *session;
    wnw_model_info info;
    wnw_policy *base, *critical;
    wnw_plan *plan[2]; /* SnapKV; CriticalKV on it */
    int32_t n;         /* entries now, the new token's included */
};

/* One query head at the measured token. */
struct head {
    const float *attn, *values;
    float nu[MAX_N];
    float proj[MAX_D][MAX_OUT]; /* its slice of the output projection */
    int32_t n, d, n_out;
};

static void load_head(struct head *hd, const wnw_session *s, const wnw_observation *obs, int32_t h)
{
    const struct ggml_tensor *wo = s->m->layers[obs->il].wo;
    const int32_t ih = h / (obs->n_head / obs->n_head_kv);
    hd->n = obs->n;
    hd->d = obs->n_embd_head;
    hd->n_out = (int32_t)wo->ne[1];
    assert_cmp(hd->n, <=, MAX_N);
    assert_cmp(hd->d, <=, MAX_D);
    assert_cmp(hd->n_out, <=, MAX_OUT);
    assert_cmp(wo->type, ==, GGML_TYPE_F32);
    hd->attn = obs->window_attn + ((int64_t)h * obs->n_window + obs->n_window - 1) * obs->n;
    hd->values = obs->values(obs, ih);
    for (int32_t k = 0; k < hd->n_out; k++)
        for (int32_t c = 0; c < hd->d; c++)
            hd->proj[c][k] = ((const float *)wo->data)[(int64_t)k * wo->ne[0] + h * hd->d + c];
    for (int32_t i = 0; i < hd->n; i++) {
        float row[MAX_OUT] = {0};
        double nu = 0;
        for (int32_t c = 0; c < hd->d; c++)
            for (int32_t k = 0; k < hd->n_out; k++)
                row[k] += hd->values[(int64_t)i * hd->d + c] * hd->proj[c][k];
        for (int32_t k = 0; k < hd->n_out; k++)
            nu += fabs((double)row[k]);
        hd->nu[i] = (float)nu;
    }
}

/* ||change of the head's output||_1, which is added to layer[n_out]. */
static double output_change(const struct head *hd, const bool *kept, double *layer)
{
    double delta[MAX_D], out[MAX_OUT] = {0}, l1 = 0;
    assert_ok(wnw__perturb_output(NULL, delta, hd->attn, hd->values, kept, hd->n, hd->d));
    for (int32_t c = 0; c < hd->d; c++)
        for (int32_t k = 0; k < hd->n_out; k++)
            out[k] += delta[c] * (double)hd->proj[c][k];
    for (int32_t k = 0; k < hd->n_out; k++) {
        l1 += fabs(out[k]);
        layer[k] += out[k];
    }
    return l1;
}

static double norm1(const double *x, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += fabs(x[i]);
    return sum;
}

/* Marks the k entries with the largest value among those that are not marked. */
static void mark(bool *kept, const double *value, int32_t n, int32_t k)
{
    for (; k > 0; k--) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (!kept[i] && (best < 0 || value[i] > value[best]))
                best = i;
        kept[best] = true;
    }
}

static void observe(const struct fixture *fx, const struct wnw__plan_source *src, int32_t il,
                    wnw_observation *obs)
{
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES, .window = 1};
    assert_ok(src->observe(src, il, &needs, NULL, obs));
    assert_int_equal(obs->n, fx->n);
}

/* What the two plans do to the output of the next token. */
static void plans_move_the_output(void **state)
{
    const struct fixture *fx = *state;
    static struct head hd;
    struct wnw__plan_source src;
    int32_t n_head = 0, n_better = 0;
    double sum[2] = {0}, layer_sum[2] = {0};
    assert_ok(wnw__session_source(&src, fx->session));
    for (int32_t il = 0; il < fx->info.n_layer; il += LAYER_STEP) {
        double layer[2][MAX_OUT] = {{0}};
        wnw_observation obs;
        observe(fx, &src, il, &obs);
        for (int32_t h = 0; h < obs.n_head; h++) {
            double l1[2];
            load_head(&hd, fx->session, &obs, h);
            for (int k = 0; k < 2; k++) {
                const int32_t *pos, ih = h / (obs.n_head / obs.n_head_kv);
                const int32_t n_kept = wnw_plan_head(fx->plan[k], il, ih, &pos);
                bool kept[MAX_N] = {0};
                for (int32_t i = 0; i < n_kept; i++)
                    kept[pos[i]] = true;
                kept[fx->n - 1] = true;
                l1[k] = output_change(&hd, kept, layer[k]);
                struct wnw__perturbation p;
                assert_ok(wnw__perturb_bounds(&p, hd.attn, hd.nu, kept, NULL, hd.n));
                assert_cmp(l1[k], <=, p.theta * (1 + 1e-4));
                sum[k] += l1[k];
            }
            n_better += l1[1] < l1[0];
            n_head++;
        }
        for (int k = 0; k < 2; k++)
            layer_sum[k] += norm1(layer[k], hd.n_out);
    }
    print_message("20 %% of %d entries: L1 change of a head's output %.4f with SnapKV, %.4f with CriticalKV, "
                  "lower in %d of %d heads; of a layer's %.4f and %.4f\n",
                  fx->n, sum[0] / n_head, sum[1] / n_head, n_better, n_head,
                  layer_sum[0] * LAYER_STEP / fx->info.n_layer, layer_sum[1] * LAYER_STEP / fx->info.n_layer);
    wnw__source_close(&src);
}

/* The bounds of a selection by the token's own attention: stage 1 in common, then by A nu or by A. */
static void bounds_are_in_order(void **state)
{
    const struct fixture *fx = *state;
    static struct head hd;
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, fx->session));
    static const int32_t percent[] = {20, 40};
    for (int k = 0; k < 2; k++) {
        const int32_t b = fx->n * percent[k] / 100;
        int32_t n_head = 0, n_guaranteed = 0;
        double change = 0, tight = 0, relaxed = 0;
        for (int32_t il = 0; il < fx->info.n_layer; il += LAYER_STEP) {
            wnw_observation obs;
            observe(fx, &src, il, &obs);
            for (int32_t h = 0; h < obs.n_head; h++) {
                bool first[MAX_N] = {0}, critical[MAX_N], attention[MAX_N];
                double a[MAX_N], product[MAX_N], layer[MAX_OUT] = {0};
                load_head(&hd, fx->session, &obs, h);
                for (int32_t i = 0; i < hd.n; i++) {
                    a[i] = (double)hd.attn[i];
                    product[i] = a[i] * (double)hd.nu[i];
                }
                mark(first, a, hd.n, b / 2);
                memcpy(critical, first, sizeof first);
                memcpy(attention, first, sizeof first);
                mark(critical, product, hd.n, b - b / 2);
                mark(attention, a, hd.n, b - b / 2);
                struct wnw__perturbation p, q;
                assert_ok(wnw__perturb_bounds(&p, hd.attn, hd.nu, critical, first, hd.n));
                assert_ok(wnw__perturb_bounds(&q, hd.attn, hd.nu, attention, first, hd.n));
                const double l1 = output_change(&hd, critical, layer);
                assert_cmp(l1, <=, p.theta * (1 + 1e-4));
                assert_cmp(p.theta, <=, p.theta_hat * (1 + 1e-4));
                assert_cmp(p.guaranteed, ==, (wnw__topk_sum(hd.attn, hd.n, b / 2) > 0.5));
                n_head++;
                if (!p.guaranteed)
                    continue;
                assert_cmp(p.theta_hat, <=, q.theta_hat * (1 + 1e-6));
                assert_cmp(q.theta_hat, <=, q.theta_relax * (1 + 1e-6));
                n_guaranteed++;
                change += l1;
                tight += p.theta_hat;
                relaxed += q.theta_relax;
            }
        }
        assert_cmp(n_guaranteed, >, n_head / 2);
        print_message(
            "%d %% of %d entries: the assumption holds in %d of %d heads; L_p %.4f, theta_hat %.4f, "
            "theta_relax of attention alone %.4f\n",
            percent[k], fx->n, n_guaranteed, n_head, change / n_guaranteed, tight / n_guaranteed,
            relaxed / n_guaranteed);
    }
    wnw__source_close(&src);
}

static int set_up(void **state)
{
    static struct fixture fx;
    fx.model = test_model_open(MODEL);
    fx.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx.model, &fx.info));
    fx.base = test_policy("snapkv");
    fx.critical = test_policy("criticalkv:norm=l1");
    int32_t *tokens = test_golden_tokens(&fx.n);
    fx.session = test_session_new(
        fx.model, &(struct test_session){.kv_type = WNW_KV_F32, .attn = WNW_ATTN_OWN, .n_ctx = 1024});
    const wnw_policy *const policies[] = {fx.base, fx.critical};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.8};
    assert_ok(test_observe(fx.session, policies, 2));
    test_prefill(fx.session, tokens, fx.n - 1);
    assert_ok(wnw_session_plan_many(fx.session, policies, (const wnw_size[]){size, size}, 2, fx.plan, NULL));
    test_prefill(fx.session, tokens + fx.n - 1, 1);
    free(tokens);
    *state = &fx;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = *state;
    wnw_plan_free(fx->plan[0]);
    wnw_plan_free(fx->plan[1]);
    wnw_policy_free(fx->base);
    wnw_policy_free(fx->critical);
    wnw_session_free(fx->session);
    wnw_model_free(fx->model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_move_the_output),
        cmocka_unit_test(bounds_are_in_order),
    };
    return cmocka_run_group_tests_name("perturbation of a real model", tests, set_up, tear_down);
}
