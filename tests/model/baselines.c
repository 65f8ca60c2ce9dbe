/* SPDX-License-Identifier: MIT */
/* H2O and TOVA while decoding, step by step on a tiny model; baselines through the whole engine. */
#include "helpers.h"

#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N_PROMPT = 90, N_STEP = 40, BUDGET = 30, MAX_HEADS = 64 };

struct fixture {
    wnw_model *m;
    wnw_model_info info;
    wnw_policy *policy;
    wnw_session *s;
    int32_t *tokens;
};

static void set_up(struct fixture *f, const char *recipe, const wnw_run *rules)
{
    f->m = test_tiny_open("llama");
    f->info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(f->m, &f->info));
    assert_cmp(f->info.n_layer * f->info.n_head_kv, <=, MAX_HEADS);
    f->tokens = test_random_tokens(N_PROMPT + N_STEP, f->info.n_vocab, 5);
    f->policy = test_policy(recipe);
    f->s =
        test_session_new(f->m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 256, .n_threads = 1});
    wnw_run own = *rules;
    own.policy = f->policy;
    assert_ok(wnw_session_begin(f->s, &own));
    assert_ok(wnw_session_read(f->s, f->tokens, N_PROMPT, NULL));
}

static void tear_down(struct fixture *f)
{
    wnw_session_free(f->s);
    wnw_policy_free(f->policy);
    wnw_model_free(f->m);
    free(f->tokens);
}

/* What a head holds: positions and attention received, mean over its query heads. */
struct held {
    int32_t n, pos[BUDGET + 1];
    float sum[BUDGET + 1];
};

static void look(const struct fixture *f, int32_t il, int32_t ih, struct held *h)
{
    const struct wnw__kv_layer *l = &f->s->cache.layers[il];
    const int32_t group = f->info.n_head / f->info.n_head_kv;
    h->n = wnw_cache_n(f->s, il, ih);
    assert_in_range(h->n, 1, BUDGET + 1);
    memcpy(h->pos, wnw_cache_positions(f->s, il, ih), (size_t)h->n * sizeof *h->pos);
    for (int32_t i = 0; i < h->n; i++) {
        h->sum[i] = 0;
        for (int32_t g = 0; g < group && l->aux[WNW_AUX_ATTN_SUM]; g++)
            h->sum[i] += wnw__cache_aux(l, WNW_AUX_ATTN_SUM, g)[l->off[ih] + i] / (float)group;
    }
}

/* Index in `before` of the entry that is not in `after`; -1: the newest, which `before` does not have. */
static int32_t dropped(const struct held *before, const struct held *after, int32_t newest)
{
    int32_t gone = -2;
    for (int32_t i = 0, k = 0; i < before->n; i++) {
        if (k < after->n && after->pos[k] == before->pos[i]) {
            k++;
            continue;
        }
        assert_int_equal(gone, -2); /* one entry goes per step */
        gone = i;
    }
    if (gone >= 0)
        assert_int_equal(after->pos[after->n - 1], newest);
    return gone == -2 ? -1 : gone;
}

/* Each step the new token comes and the entry with the smallest sum goes, among those that are not recent.
 * The sum of what is gone can only have grown in that step, so it was no larger before than any survivor's
 * now. */
static void h2o_drops_the_lightest(void **state)
{
    (void)state;
    struct fixture f;
    static struct held before[MAX_HEADS], after;
    int32_t n_light = 0;
    set_up(&f, "h2o",
           &(wnw_run){WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET}, .every = 1,
                      .target = BUDGET});
    const int32_t n_heads = f.info.n_layer * f.info.n_head_kv;
    for (int32_t k = 0; k < n_heads; k++)
        look(&f, k / f.info.n_head_kv, k % f.info.n_head_kv, &before[k]);
    for (int32_t step = 0; step < N_STEP; step++) {
        assert_ok(wnw_session_decode(f.s, f.tokens[N_PROMPT + step]));
        for (int32_t k = 0; k < n_heads; k++) {
            look(&f, k / f.info.n_head_kv, k % f.info.n_head_kv, &after);
            assert_int_equal(after.n, BUDGET);
            const int32_t gone = dropped(&before[k], &after, N_PROMPT + step);
            /* Of 31 entries the last 15 are recent. */
            assert_in_range(gone, 0, BUDGET + 1 - BUDGET / 2 - 1);
            for (int32_t i = 0; i < BUDGET - BUDGET / 2; i++) {
                assert_cmp(before[k].sum[gone], <=, after.sum[i] + 1e-5f);
                n_light += before[k].sum[gone] < after.sum[i];
            }
            for (int32_t i = 0; i < BUDGET / 2 - 1; i++) /* sums go with their entries and grow */
                assert_cmp(after.sum[BUDGET / 2 + i], >=, before[k].sum[BUDGET / 2 + i + 1] - 1e-5f);
            before[k] = after;
        }
    }
    assert_cmp(n_light, >, 0);
    tear_down(&f);
}

/* One entry goes per step, the same in all heads of a layer; the newest may be the one. */
static void tova_drops_one_for_all_heads(void **state)
{
    (void)state;
    struct fixture f;
    static struct held before[MAX_HEADS], after;
    set_up(&f, "tova",
           &(wnw_run){WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET}, .every = 1,
                      .target = BUDGET});
    const int32_t n_heads = f.info.n_layer * f.info.n_head_kv;
    for (int32_t k = 0; k < n_heads; k++)
        look(&f, k / f.info.n_head_kv, k % f.info.n_head_kv, &before[k]);
    for (int32_t step = 0; step < N_STEP; step++) {
        assert_ok(wnw_session_decode(f.s, f.tokens[N_PROMPT + step]));
        for (int32_t k = 0, first = 0; k < n_heads; k++) {
            look(&f, k / f.info.n_head_kv, k % f.info.n_head_kv, &after);
            assert_int_equal(after.n, BUDGET);
            const int32_t gone = dropped(&before[k], &after, N_PROMPT + step);
            first = k % f.info.n_head_kv == 0 ? gone : first;
            assert_int_equal(gone, first);
            before[k] = after;
        }
    }
    tear_down(&f);
}

/* Every baseline plans on a real cache, and those whose total is exact reach it. */
static void baselines_reach_their_size(void **state)
{
    (void)state;
    static const char *const recipes[] = {"h2o",
                                          "observed_attention",
                                          "vatp:sinks=4",
                                          "vatp-window:sinks=4,window=20",
                                          "cake-oneshot:window=8",
                                          "zigzagkv",
                                          "dynamickv",
                                          "simlayerkv:last=16"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct fixture f;
        set_up(&f, recipes[i],
               &(wnw_run){WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET}});
        int64_t n = 0;
        for (int32_t il = 0; il < f.info.n_layer; il++)
            for (int32_t ih = 0; ih < f.info.n_head_kv; ih++)
                n += wnw_cache_n(f.s, il, ih);
        if (n != (int64_t)BUDGET * f.info.n_layer * f.info.n_head_kv)
            fail_msg("%s keeps %lld entries", recipes[i], (long long)n);
        assert_ok(wnw_session_decode(f.s, f.tokens[N_PROMPT]));
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2o_drops_the_lightest),
        cmocka_unit_test(tova_drops_one_for_all_heads),
        cmocka_unit_test(baselines_reach_their_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
