/* SPDX-License-Identifier: MIT */
/* Perturbation of a head's output and its bounds: CriticalKV's theorems on numbers worked out by hand. */
#include "asserts.h"

#include <math.h>
#include <string.h>

#include "peek_session.h"
#include "random.h"

static const float attn8[] = {.40f, .20f, .12f, .10f, .08f, .05f, .03f, .02f};
static const float proj8[] = {1, 0, 0, 1, 1, -1, .5f, 0, -2, 2, 3, 3, 0, -3, -4, 4};
static const float nu8[] = {1, 1, 2, .5f, 4, 6, 3, 8};
static const bool stage1[] = {1, 1, 0, 0, 0, 0, 0, 0};

static void two_stages(void **state)
{
    (void)state;
    const bool kept[] = {1, 1, 0, 0, 1, 1, 0, 0};
    struct wnw__perturbation p;
    double l1;
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, kept, stage1, 8), WNW_OK);
    assert_int_equal(wnw__perturb_output(&l1, NULL, attn8, proj8, kept, 8, 2), WNW_OK);
    assert_near(p.sigma, .73, 1e-6);
    assert_near(p.sigma_first, .6, 1e-6);
    assert_true(p.guaranteed);
    assert_near(l1, .372877, 1e-6);
    assert_near(p.theta, .991233, 1e-6);
    assert_near(p.theta_hat, 1.353333, 1e-6);
    assert_near(p.theta_relax, 1.538333, 1e-6);
}

static void attention_only(void **state)
{
    (void)state;
    const bool kept[] = {1, 1, 1, 1, 0, 0, 0, 0};
    struct wnw__perturbation p;
    double l1;
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, kept, stage1, 8), WNW_OK);
    assert_int_equal(wnw__perturb_output(&l1, NULL, attn8, proj8, kept, 8, 2), WNW_OK);
    assert_near(p.sigma, .82, 1e-6);
    assert_near(l1, .497561, 1e-6);
    assert_near(p.theta, 1.065366, 1e-6);
    assert_near(p.theta_hat, 1.463333, 1e-6);
    assert_near(p.theta_relax, 1.523333, 1e-6);
}

/* Where nothing is evicted nothing changes; with one stage theta_hat is theta (equality of theorem 3.5). */
static void edges(void **state)
{
    (void)state;
    const bool all[] = {1, 1, 1, 1, 1, 1, 1, 1}, kept[] = {1, 1, 0, 1, 0, 0, 0, 0};
    struct wnw__perturbation p;
    double l1, delta[2];
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, all, NULL, 8), WNW_OK);
    assert_int_equal(wnw__perturb_output(&l1, delta, attn8, proj8, all, 8, 2), WNW_OK);
    assert_near(p.theta, 0, 1e-6);
    assert_near(l1, 0, 1e-6);
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, kept, NULL, 8), WNW_OK);
    assert_near(p.theta_hat, p.theta, 1e-12);
    assert_near(p.sigma_first, p.sigma, 0);
    assert_near(wnw__topk_sum(attn8, 8, 2), .6, 1e-6);
    assert_near(wnw__topk_sum(attn8, 8, 0), 0, 0);
    assert_near(wnw__topk_sum(attn8, 8, 99), 1, 1e-6);
}

static void refusals(void **state)
{
    (void)state;
    const bool none[8] = {0}, kept[] = {0, 1, 1, 1, 0, 0, 0, 0};
    const float half[] = {.4f, .1f, 0, 0, 0, 0, 0, 0}, negative[] = {1.5f, -.5f, 0, 0, 0, 0, 0, 0};
    const float not_norm[] = {1, 1, 1, 1, 1, 1, 1, -1};
    struct wnw__perturbation p;
    double l1 = 7;
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, none, none, 8), WNW_E_ARG);
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, kept, stage1, 8),
                     WNW_E_ARG); /* stage 1 is not kept */
    assert_int_equal(wnw__perturb_bounds(&p, attn8, nu8, kept, none, 8), WNW_E_ARG);
    assert_int_equal(wnw__perturb_bounds(&p, half, nu8, kept, NULL, 8), WNW_E_ARG);
    assert_int_equal(wnw__perturb_bounds(&p, negative, nu8, kept, NULL, 8), WNW_E_ARG);
    assert_int_equal(wnw__perturb_bounds(&p, attn8, not_norm, kept, NULL, 8), WNW_E_ARG);
    assert_int_equal(wnw__perturb_output(&l1, NULL, attn8, proj8, none, 8, 2), WNW_E_ARG);
    assert_near(l1, 0, 0);
}

/* ---- Random heads ---- */

enum { N = 48, D = 24 };

struct head {
    float attn[N], proj[N * D], nu[N];
};

/* Concentrated attention, values of random directions and log-normal lengths. */
static void make_head(struct head *h, uint32_t *seed)
{
    double sum = 0, a[N];
    for (int i = 0; i < N; i++)
        sum += a[i] = exp(2 * test_normal(seed));
    for (int i = 0; i < N; i++) {
        const double length = exp(test_normal(seed));
        double nu = 0;
        h->attn[i] = (float)(a[i] / sum);
        for (int c = 0; c < D; c++) {
            h->proj[i * D + c] = (float)(length * test_normal(seed));
            nu += fabs((double)h->proj[i * D + c]);
        }
        h->nu[i] = (float)nu;
    }
}

/* Marks the k entries with the largest value among those that are not marked. */
static void mark(bool *kept, const double *value, int k)
{
    for (; k > 0; k--) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (!kept[i] && (best < 0 || value[i] > value[best]))
                best = i;
        kept[best] = true;
    }
}

static void bounds_hold(void **state)
{
    (void)state;
    uint32_t seed = 5;
    int n_guaranteed = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct head h;
        make_head(&h, &seed);
        double attn[N], product[N], random[N];
        for (int i = 0; i < N; i++) {
            attn[i] = h.attn[i];
            product[i] = (double)h.attn[i] * h.nu[i];
            random[i] = (double)test_uniform(&seed);
        }
        const int b = 4 + (int)((double)test_uniform(&seed) * 30);
        bool first[N] = {0}, kept[3][N];
        mark(first, attn, b / 2);
        const double *const by[3] = {product, attn, random};
        double theta_hat[3];
        for (int k = 0; k < 3; k++) {
            struct wnw__perturbation p;
            double l1;
            memcpy(kept[k], first, sizeof first);
            mark(kept[k], by[k], b - b / 2);
            assert_int_equal(wnw__perturb_bounds(&p, h.attn, h.nu, kept[k], first, N), WNW_OK);
            assert_int_equal(wnw__perturb_output(&l1, NULL, h.attn, h.proj, kept[k], N, D), WNW_OK);
            assert_cmp(l1, <=, p.theta * (1 + 1e-5));
            assert_cmp(p.theta, <=, p.theta_hat * (1 + 1e-5));
            if (p.guaranteed)
                assert_cmp(p.theta_hat, <=, p.theta_relax * (1 + 1e-5));
            assert_cmp(p.guaranteed, ==, (wnw__topk_sum(h.attn, N, b / 2) > 0.5));
            theta_hat[k] = p.theta_hat;
            n_guaranteed += k == 0 && p.guaranteed;
        }
        /* What stage 2 minimises, if the assumption holds. L_p itself need not be lower. */
        if (wnw__topk_sum(h.attn, N, b / 2) > 0.5) {
            assert_cmp(theta_hat[0], <=, theta_hat[1] * (1 + 1e-5));
            assert_cmp(theta_hat[0], <=, theta_hat[2] * (1 + 1e-5));
        }
    }
    assert_cmp(n_guaranteed, >, 100);
    assert_cmp(n_guaranteed, <, 300); /* both cases were met */
}

/* Without entry p alone the output moves by A_p / (1 - A_p) || o - v_p W_O ||_1. */
static void one_entry_evicted(void **state)
{
    (void)state;
    uint32_t seed = 9;
    struct head h;
    make_head(&h, &seed);
    for (int p = 0; p < N; p++) {
        bool kept[N];
        double l1, want = 0, delta[D];
        for (int i = 0; i < N; i++)
            kept[i] = i != p;
        for (int c = 0; c < D; c++) {
            double o = 0;
            for (int i = 0; i < N; i++)
                o += (double)h.attn[i] * h.proj[i * D + c];
            want += fabs(o - h.proj[p * D + c]);
        }
        want *= h.attn[p] / (1.0 - h.attn[p]);
        assert_int_equal(wnw__perturb_output(&l1, delta, h.attn, h.proj, kept, N, D), WNW_OK);
        assert_near(l1, want, 1e-6 * (1 + want));
        double sum = 0;
        for (int c = 0; c < D; c++)
            sum += fabs(delta[c]);
        assert_near(sum, l1, 1e-12);
    }
}

/* Of six entries five were kept; what stays in any case comes first, then the best by score. */
static void first_stages(void **state)
{
    static const float score[6] = {0.1f, 0.9f, 0.3f, 0.8f, 0.2f, 0.05f};
    static const int32_t kept[5] = {0, 1, 2, 3, 5};
    static const struct {
        int32_t n_first, sinks, n_last;
        bool mark[6];
    } rows[] = {
        {3, 0, 1, {0, 1, 0, 1, 0, 1}}, /* the last entry, and the two best */
        {3, 1, 1, {1, 1, 0, 0, 0, 1}}, /* the sink takes a place */
        {1, 1, 1, {1, 0, 0, 0, 0, 1}}, /* what stays in any case is more than the stage */
        {2, 0, 0, {0, 1, 0, 1, 0, 0}}, {0, 0, 0, {0, 0, 0, 0, 0, 0}}, {5, 0, 0, {1, 1, 1, 1, 0, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool mark[6];
        float value[5];
        wnw__perturb_mark_stage(mark,
                                &(struct wnw__stage_one){.score = score,
                                                         .n = 6,
                                                         .kept = kept,
                                                         .n_kept = 5,
                                                         .n_first = rows[i].n_first,
                                                         .sinks = rows[i].sinks,
                                                         .prot = {.n_last = rows[i].n_last}},
                                value);
        assert_memory_equal(mark, rows[i].mark, sizeof mark);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages),   cmocka_unit_test(attention_only), cmocka_unit_test(edges),
        cmocka_unit_test(refusals),     cmocka_unit_test(bounds_hold),    cmocka_unit_test(one_entry_evicted),
        cmocka_unit_test(first_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
