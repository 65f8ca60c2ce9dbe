/* SPDX-License-Identifier: MIT */
/* Head budgets from a sample of a second look, by hand and in general. */
#include "asserts.h"
#include "fake_source.h"
#include "peek_plan.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 3, M = 8, SIZE = 1 + M };

struct problem {
    wnw_layer_problem p;
    double gathered[2 * ROW * SIZE]; /* of two layers; the first takes no part */
    int32_t il[1], n_entry[ROW];
    wnw_protected prot[ROW];
    float scratch[ROW * 100];
    char warning[256];
};

/* Heads of n entries, whose samples have the logarithms top[r], top[r] - 1, ..; of the rest there is nothing. */
static void make(struct problem *q, int32_t n, int32_t budget, const double top[ROW])
{
    *q = (struct problem){.il = {1}};
    for (int32_t r = 0; r < ROW; r++) {
        double *row = q->gathered + (ROW + r) * SIZE;
        row[0] = M;
        for (int32_t i = 0; i < M; i++)
            row[1 + (i * 3) % M] = top[r] - i; /* in no order */
        q->n_entry[r] = n;
    }
    q->p = (wnw_layer_problem){.n_layer = 1,
                               .n = n,
                               .budget = budget,
                               .mean = budget,
                               .il = q->il,
                               .n_layer_model = 2,
                               .n_head = ROW,
                               .n_head_kv = ROW,
                               .gathered = q->gathered,
                               .n_entry = q->n_entry,
                               .prot = q->prot,
                               .n_past = n};
}

static void run(struct problem *q, int32_t *n_keep)
{
    wnw_policy *policy = test_policy("random+sampled:sample=8,most=8");
    assert_ok(policy->part[WNW_PART_HEAD_BUDGET].heads.allocate_model(policy->opts[WNW_PART_HEAD_BUDGET],
                                                                      &q->p, n_keep, q->scratch, q->warning));
    wnw_policy_free(policy);
}

/* Above -6.5 there are -1 .. -6 of the first head, -5 and -6 of the second, and a half of all heads' entries is to stay: six
 * eighths, two eighths, and of a head like the first two together a half. */
static void by_hand(void **state)
{
    (void)state;
    int32_t n[ROW];
    static struct problem q;
    make(&q, 80, 40, (const double[]){-1, -5, -3});
    run(&q, n);
    assert_memory_equal(n, ((const int32_t[]){60, 20, 40}), sizeof n);

    make(&q, 80, 40,
         (const double[]){-1, -5, -3}); /* protected entries come first, and the share is of the rest */
    for (int32_t r = 0; r < ROW; r++)
        q.prot[r] = (wnw_protected){.n_first = 8, .n_last = 8};
    run(&q, n);
    assert_int_equal(n[0] + n[1] + n[2], 120);
    assert_int_equal(n[0] - n[2], 16);
    assert_int_equal(n[2] - n[1], 16);

    make(&q, 80, 40,
         (const double[]){-1, -5, -3}); /* nothing is known of the third: it keeps the average of a scale */
    q.gathered[(ROW + 2) * SIZE] = 7;
    run(&q, n);
    assert_int_equal(n[0] + n[1] + n[2], 120);
    assert_cmp(n[0], >, n[1]);

    make(&q, 80, 40,
         (const double[]){-1, -5, -3}); /* a head that has lost entries keeps no more than it has */
    q.n_entry[0] = 10;
    run(&q, n);
    assert_int_equal(n[0], 10);
    assert_int_equal(n[1] + n[2], 110);
}

static void any_size(void **state)
{
    (void)state;
    static struct problem q;
    uint64_t seed = 3;
    for (int trial = 0; trial < 300; trial++) {
        const int32_t n = 1 + (int32_t)(test_random(&seed) % 90),
                      budget = (int32_t)(test_random(&seed) % (uint64_t)(n + 1));
        int32_t more[ROW], less[ROW], sum = 0;
        double top[ROW];
        for (int32_t r = 0; r < ROW; r++)
            top[r] = -(double)(test_random(&seed) % 20);
        make(&q, n, budget, top);
        run(&q, more);
        for (int32_t r = 0; r < ROW; r++) {
            assert_in_range(more[r], 0, n);
            sum += more[r];
            for (int32_t k = 0; k < ROW; k++)
                assert_true(top[r] <= top[k] || more[r] >= more[k] - 1); /* who had more above stays longer */
        }
        assert_int_equal(sum, ROW * budget);
        if (budget == 0)
            continue;
        make(&q, n, budget - 1, top);
        run(&q, less);
        for (int32_t r = 0; r < ROW; r++)
            assert_cmp(less[r], <=, more[r] + 1);
    }
}

/* Of each entry in the sample the largest attention over the query heads of its KV head. */
static void gathers(void **state)
{
    (void)state;
    enum { N = 20 };
    static const wnw_sample_place places[] = {{.lead = 0, .from = 3, .to = 7},
                                              {.lead = 10, .from = 13, .to = 18}};
    static const int32_t taken[M] = {3, 4, 5, 6, 13, 14, 15, 16};
    int32_t pos[2 * N], n_entry[2] = {N, N - 8};
    float found[4 * N];
    double numbers[2 * 2 * SIZE] = {0};
    const wnw_observation obs = {.il = 1,
                                 .n_layer = 2,
                                 .n_head = 4,
                                 .n_head_kv = 2,
                                 .n = N,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .pass2_max = found,
                                 .pass2_places = places,
                                 .n_pass2_places = 2};
    for (int32_t c = 0; c < N; c++) {
        pos[c] = c;
        pos[N + c] = c < N - 8 ? 2 * c : -1; /* 4, 6, 14 and 16 are in the sample */
        for (int32_t h = 0; h < 4; h++)
            found[h * N + c] = (float)(c + 1) / (h % 2 ? 100.0f : 200.0f);
    }
    wnw_policy *policy = test_policy("random+sampled:sample=8,most=8");
    const wnw_gather *gather = policy->part[WNW_PART_HEAD_BUDGET].head.gather;
    const wnw_shape shape = {.n_layer = 2, .n_head = 4, .n_head_kv = 2};
    assert_int_equal(gather->size(policy->opts[WNW_PART_HEAD_BUDGET], &shape), 2 * 2 * SIZE);
    assert_ok(gather->visit(policy->opts[WNW_PART_HEAD_BUDGET], &obs, numbers));
    wnw_policy_free(policy);
    for (int32_t i = 0; i < 2 * SIZE; i++)
        assert_near(numbers[i], 0, 0);
    assert_near(numbers[2 * SIZE], M, 0); /* nine are there, as many count as were asked for */
    for (int32_t i = 0; i < M; i++)
        assert_near(numbers[2 * SIZE + 1 + i], log((taken[i] + 1) / 100.0), 1e-4);
    assert_near(numbers[3 * SIZE], 4, 0);
    static const int32_t of_second[] = {2, 3, 7, 8};
    for (int32_t i = 0; i < 4; i++)
        assert_near(numbers[3 * SIZE + 1 + i], log((of_second[i] + 1) / 100.0), 1e-4);
}

static void recipes(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
    } refused[] = {
        {"kvzip+sampled", "kvzip cannot be combined with sampled: each has other tokens read a second time"},
        {"kvcompose+sampled+uniform", "each has other tokens"},
        {"random+sampled:sample=7", "8 to 4096"},
        {"random+sampled:place=7", "8 to 4096"},
        {"random+sampled:most=7", "8 to 4096"},
        {"random+sampled:every=-1", "0 to 65536"},
        {"snapkv+sampled+pyramid", "pyramid"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        wnw_policy *p = NULL;
        assert_error(wnw_policy_parse(&p, refused[i].recipe, NULL), WNW_E_ARG);
        assert_says(refused[i].says);
    }
    static const char *const taken[] = {"keydiff-sampled", "replay-sampled", "expected_attention+sampled"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        wnw_policy *p = test_policy(taken[i]);
        assert_true(wnw_policy_needs(p).flags & WNW_NEED_SECOND_PASS);
        assert_int_equal(wnw_policy_needs(p).second_pass, WNW_PASS_SAMPLE);
        assert_true(wnw_policy_allows(p, WNW_PHASE_END, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL));
        assert_false(wnw_policy_allows(p, WNW_PHASE_DECODE, NULL));
        wnw_policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(any_size),
        cmocka_unit_test(gathers),
        cmocka_unit_test(recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
