/* SPDX-License-Identifier: MIT */
/* CompressKV: which heads choose, one list per layer, layer budgets against worked numbers and the released
 * calibrations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"
#include "winnow_calibrate.h"

/* ---- The scorer ---- */

static const int32_t two_heads_pos[] = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
static const int32_t six_six[] = {6, 6};

/* 4 query heads, 2 KV heads, window 1: the last column is the window's own. */
static const float attn[] = {5,      0, 0, 0, 10, 1, /**/ 0, 5, 0, 0, 0, 1,
                             /**/ 0, 0, 5, 0, 0,  1, /**/ 0, 0, 0, 0, 0, 1};

static wnw_observation observation(const wnw_profile *profile)
{
    return (wnw_observation){.n_layer = 1,
                             .n_head = 4,
                             .n_head_kv = 2,
                             .n = 6,
                             .n_past = 6,
                             .n_entry = six_six,
                             .pos = two_heads_pos,
                             .n_window = 1,
                             .window_attn = attn,
                             .profile = profile};
}

static void assert_rows(const float *got, const double *want, int n)
{
    for (int ih = 0; ih < 2; ih++)
        for (int i = 0; i < n; i++)
            if (fabs((double)got[ih * 6 + i] - want[i]) > 1e-6)
                fail_msg("head %d entry %d is %g, expected %g", ih, i, (double)got[ih * 6 + i], want[i]);
}

static void only_ranked_heads_choose(void **state)
{
    (void)state;
    int32_t rank[] = {2, 0, 1, 3}, trad[] = {1, 3, 0, 2};
    float trad_mean[] = {0, 0.5f, 0, 0.1f};
    wnw_profile p = {
        .model = {.n_layer = 1, .n_head = 4}, .srh_rank = rank, .trad_rank = trad, .trad_mean = trad_mean};
    const wnw_observation obs = observation(&p);
    float out[12];
    /* Head 0 pooled: [1,1,3,2,2]; both KV heads get the same row. */
    rank[0] = 0;
    rank[1] = 2;
    assert_int_equal(try_scorer("compresskv:window=1,k=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1, 1, 3, 2, 2}, 5);
    /* Heads 0 and 2, which read different KV heads: [1,1,1,1,1] joins, mean over two. */
    assert_int_equal(try_scorer("compresskv:window=1,k=2", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1, 1, 2, 1.5, 1.5}, 5);
    /* The profile's k where the recipe has none; else an eighth of the heads. */
    p.srh_k = 2;
    assert_int_equal(try_scorer("compresskv:window=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1, 1, 2, 1.5, 1.5}, 5);
    p.srh_k = 0;
    assert_int_equal(try_scorer("compresskv:window=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1, 1, 3, 2, 2}, 5);
    /* k above the number of heads takes them all. */
    assert_int_equal(try_scorer("compresskv:window=1,k=99,kernel=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1.25, 1.25, 1.25, 0, 2.5}, 5);
    assert_int_equal(try_scorer("compresskv:window=1,heads=all,kernel=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1.25, 1.25, 1.25, 0, 2.5}, 5);
    assert_int_equal(try_scorer("compresskv:window=1,k=1,heads=traditional,kernel=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){0, 5, 0, 0, 0}, 5);
    /* No traditional retrieval head in the layer: all of them. */
    trad_mean[1] = trad_mean[3] = 0;
    assert_int_equal(try_scorer("compresskv:window=1,k=1,heads=traditional,kernel=1", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){1.25, 1.25, 1.25, 0, 2.5}, 5);
    /* Or the first of the ranking all the same: head 1. */
    assert_int_equal(try_scorer("compresskv:window=1,k=1,heads=traditional,zero=rank,kernel=1", &obs, out),
                     WNW_OK);
    assert_rows(out, (const double[]){0, 5, 0, 0, 0}, 5);
    /* Max pooling per head, then the mean. */
    assert_int_equal(try_scorer("compresskv:window=1,k=2,kernel=3,pool=max", &obs, out), WNW_OK);
    assert_rows(out, (const double[]){2.5, 5, 2.5, 7.5, 5}, 5);
}

static void profile_is_needed_where_it_is_used(void **state)
{
    (void)state;
    float out[12];
    wnw_profile p = {.model = {.n_layer = 1, .n_head = 4}};
    wnw_observation obs = observation(NULL);
    assert_int_equal(try_scorer("compresskv", &obs, out), WNW_E_MISMATCH);
    obs.profile = &p;
    assert_int_equal(try_scorer("compresskv:heads=traditional", &obs, out), WNW_E_MISMATCH);
    assert_says("traditional");
    static const struct {
        const char *recipe;
        uint32_t profiles;
    } rows[] = {{"compresskv", 1u << WNW_PROFILE_SRH | 1u << WNW_PROFILE_LAYERS},
                {"compresskv+uniform", 1u << WNW_PROFILE_SRH},
                {"compresskv:heads=traditional+uniform", 1u << WNW_PROFILE_SRH},
                {"compresskv:heads=all", 1u << WNW_PROFILE_LAYERS},
                {"compresskv:heads=all+uniform", 0},
                {"compresskv:heads=random+uniform", 0},
                {"snapkv+error_aware", 1u << WNW_PROFILE_LAYERS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *policy_ = test_policy(rows[i].recipe);
        assert_int_equal(wnw_policy_needs(policy_).profiles, rows[i].profiles);
        assert_int_equal((wnw_policy_needs(policy_).flags & WNW_NEED_PROFILE) != 0, rows[i].profiles != 0);
        wnw_policy_free(policy_);
    }
    /* The driver refuses before it looks at anything. */
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 2, 2, 2, 100, false);
    f.src.profile = NULL;
    const wnw_size size = size_budget(40);
    assert_int_equal(fake_plan(&plan, &f, "compresskv", &size, NULL), WNW_E_MISMATCH);
    assert_says("srh");
    assert_int_equal(f.n_observed, 0);
    plan = fake_planned(&f, "compresskv:heads=all+uniform", &size, NULL);
    wnw_plan_free(plan);
    f.src.profile = &f.profile;
    f.profile.kinds = 1u << WNW_PROFILE_SRH;
    plan = fake_planned(&f, "compresskv+uniform", &size, NULL);
    wnw_plan_free(plan);
    assert_int_equal(fake_plan(&plan, &f, "compresskv", &size, NULL), WNW_E_MISMATCH);
    assert_says("layers");
    fake_free(&f);
}

/* Random heads: k distinct ones, the same for the same seed, others for another. */
static void random_heads(void **state)
{
    (void)state;
    enum { H = 16 };
    float a[H * H], out[H], again[H];
    int32_t pos[H], n_entry[] = {H};
    int n_different = 0;
    memset(a, 0, sizeof a);
    for (int32_t h = 0; h < H; h++) {
        a[h * H + h] = 1; /* head h marks entry h */
        pos[h] = h;
    }
    wnw_observation obs = {.n_layer = 8,
                           .n_head = H,
                           .n_head_kv = 1,
                           .n = H,
                           .n_past = H + 1,
                           .n_entry = n_entry,
                           .pos = pos,
                           .n_window = 1,
                           .window_attn = a};
    for (obs.il = 0; obs.il < 8; obs.il++) {
        int n = 0;
        assert_int_equal(try_scorer("compresskv:window=1,kernel=1,k=5,heads=random,seed=1", &obs, out), 0);
        for (int i = 0; i < H; i++)
            n += out[i] > 0.19f && out[i] < 0.21f;
        assert_int_equal(n, 5);
        try_scorer("compresskv:window=1,kernel=1,k=5,heads=random,seed=1", &obs, again);
        assert_memory_equal(out, again, sizeof out);
        try_scorer("compresskv:window=1,kernel=1,k=5,heads=random,seed=2", &obs, again);
        n_different += memcmp(out, again, sizeof out) != 0;
    }
    assert_cmp(n_different, >=, 6);
    /* k = 0: an eighth of the heads, halves up: 2 of 12. */
    obs.il = 0;
    obs.n_head = 12;
    int n = 0;
    try_scorer("compresskv:window=1,kernel=1,heads=random", &obs, out);
    for (int i = 0; i < H; i++)
        n += out[i] > 0.49f && out[i] < 0.51f;
    assert_int_equal(n, 2);
}

static void one_list_per_layer(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 4, 3, 2, 300, false);
    const wnw_size size = size_budget(60);
    plan = fake_planned(&f, "compresskv", &size, &r);
    assert_int_equal(fake_check_plan(plan, &f), 4 * 3 * 60);
    assert_string_equal(r.warning, "");
    for (int32_t il = 0; il < 4; il++) {
        const int32_t *first, *other;
        const int32_t n = wnw_plan_head(plan, il, 0, &first);
        assert_cmp(n, >=, 32);
        for (int32_t k = 292; k < 300; k++)
            assert_true(fake_holds(plan, il, 0, k));
        for (int32_t ih = 1; ih < 3; ih++) {
            assert_int_equal(wnw_plan_head(plan, il, ih, &other), n);
            assert_memory_equal(first, other, (size_t)n * sizeof *first);
        }
    }
    wnw_plan_free(plan);
    /* Ragged caches of an earlier compression: the same token counts once, whichever head holds it. */
    fake_free(&f);
    fake_init(&f, 2, 3, 2, 200, true);
    const wnw_size half = size_ratio(0.5);
    plan = fake_planned(&f, "compresskv", &half, &r);
    fake_check_plan(plan, &f);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* Small budgets shrink the window and say so; the total is what was asked for. */
static void small_budgets(void **state)
{
    (void)state;
    struct fake f;
    fake_init(&f, 3, 2, 2, 120, false);
    for (int32_t b = 1; b < 40; b++)
        for (int uniform = 0; uniform < 2; uniform++) {
            wnw_plan *plan;
            wnw_report r = {WNW_INIT(wnw_report)};
            const wnw_size size = size_budget(b);
            const char *recipe = uniform ? "compresskv+uniform" : "compresskv";
            if (fake_plan(&plan, &f, recipe, &size, &r) != WNW_OK)
                fail_msg("budget %d: %s", b, wnw_last_error());
            assert_int_equal(fake_check_plan(plan, &f), b * 6);
            assert_int_equal(strstr(r.warning, "window shrinks") != NULL, b <= 8);
            assert_int_equal(strstr(r.warning, "error_aware") != NULL, b < 32 && !uniform);
            assert_cmp(fake_holds(plan, 0, 0, 119), ==, (b > 1));
            wnw_plan_free(plan);
        }
    fake_free(&f);
}

/* ---- Which heads are observed ---- */

enum { WATCHED = 8, WATCHED_LAYERS = 2 };

struct watch {
    struct fake f; /* first: the callbacks get its address */
    int (*observe)(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs, const bool *heads,
                   wnw_observation *obs);
    bool used[WATCHED_LAYERS][WATCHED];
};

/* Heads that nobody asked for hold what nobody may read. */
static int watch_observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                         const bool *heads, wnw_observation *obs)
{
    struct watch *w = (struct watch *)(uintptr_t)src;
    const int rc = w->observe(src, il, needs, heads, obs);
    for (int32_t h = 0; h < WATCHED; h++)
        w->used[il][h] = !heads || heads[h];
    for (int32_t h = 0; rc == WNW_OK && h < WATCHED; h++) {
        float *row = (float *)(uintptr_t)obs->window_attn + (int64_t)h * obs->n_window * obs->n;
        for (int64_t i = 0; !w->used[il][h] && i < (int64_t)obs->n_window * obs->n; i++)
            row[i] = NAN;
    }
    return rc;
}

/* Plans one or two policies and checks which of the 8 query heads were asked for in every layer. */
static void assert_watched(const char *one, const char *two, const char *const want[WATCHED_LAYERS])
{
    static int32_t rank[] = {3, 5, 0, 1, 2, 4, 6, 7, /**/ 7, 0, 1, 2, 3, 4, 5, 6};
    struct watch w = {.observe = NULL};
    const wnw_size sizes[] = {size_budget(60), size_budget(60)};
    wnw_policy *const p[] = {test_policy(one), test_policy(two ? two : one)};
    const int32_t n = two ? 2 : 1;
    wnw_plan *plan[2] = {NULL}, *alone;
    fake_init(&w.f, WATCHED_LAYERS, 4, 2, 200, false);
    memcpy(w.f.profile.srh_rank, rank, sizeof rank);
    w.observe = w.f.src.observe;
    assert_int_equal(wnw__plan_make(&alone, p[0], sizes, &w.f.src, NULL), WNW_OK);
    w.f.src.observe = watch_observe;
    assert_int_equal(wnw__plan_make_many(plan, (const wnw_policy *const *)p, sizes, n, &w.f.src, NULL),
                     WNW_OK);
    for (int32_t il = 0; il < WATCHED_LAYERS; il++)
        for (int32_t h = 0; h < WATCHED; h++)
            if (w.used[il][h] != (want[il][h] == 'x'))
                fail_msg("%s and %s: layer %d head %d is %swanted", one, two ? two : "-", il, h,
                         w.used[il][h] ? "" : "not ");
    assert_same_plan(plan[0], alone); /* values that are not observed make no difference */
    for (int32_t i = 0; i < n; i++)
        wnw_plan_free(plan[i]);
    wnw_plan_free(alone);
    wnw_policy_free(p[0]);
    wnw_policy_free(p[1]);
    fake_free(&w.f);
}

/* The window's attention is asked for in the heads that choose; several policies: in the heads of all; and in
 * every head as soon as one part looks at all of them. */
static void only_heads_that_choose_are_observed(void **state)
{
    (void)state;
    static const char all[] = "xxxxxxxx";
    assert_watched("compresskv:k=2", NULL, (const char *const[]){"...x.x..", "x......x"});
    assert_watched("snapkv+retrieval_heads:k=1", NULL, (const char *const[]){"...x....", ".......x"});
    assert_watched("compresskv:k=1", "compresskv:k=3", (const char *const[]){"x..x.x..", "xx.....x"});
    assert_watched("compresskv:k=1", "knorm", (const char *const[]){"...x....", ".......x"});
    assert_watched("compresskv:k=1", "snapkv", (const char *const[]){all, all});
    assert_watched("compresskv:k=1+cake_layers", NULL, (const char *const[]){all, all});
    assert_watched("compresskv:k=1,heads=all", NULL, (const char *const[]){all, all});
    assert_watched("tova+retrieval_heads:k=1", NULL, (const char *const[]){all, all});
}

/* ---- Layer budgets ---- */

static int64_t layers_of(const double *share, int32_t n_layer, int32_t n, int32_t budget, int32_t n_protected,
                         const char *recipe, int32_t *n_keep)
{
    const wnw_profile profile = {.model = {.n_layer = n_layer}, .layer_share = (double *)(uintptr_t)share};
    const wnw_layer_problem problem = {.n_layer = n_layer,
                                       .n = n,
                                       .n_protected = n_protected,
                                       .budget = budget,
                                       .mean = budget,
                                       .n_layer_model = n_layer,
                                       .profile = &profile};
    return run_layer_budget(recipe, &problem, n_keep);
}

static int64_t layers_with(const double *share, int32_t n_layer, int32_t budget, int32_t n_protected,
                           const char *recipe, int32_t *n_keep)
{
    return layers_of(share, n_layer, 100000, budget, n_protected, recipe, n_keep);
}

static void error_aware_vectors(void **state)
{
    (void)state;
    static const struct {
        double e[4];
        int32_t budget, want[4];
    } rows[] = {
        {{.5, .3, .15, .05}, 64, {96, 71, 51, 38}},
        {{.4, .3, .2, .1}, 64, {83, 70, 58, 45}},
        {{.97, .01, .01, .01}, 64, {157, 33, 33, 33}},
        {{.2, .2, .2, .4}, 34, {33, 34, 34, 35}},
    };
    int32_t got[4];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(layers_with(rows[i].e, 4, rows[i].budget, 8, "compresskv", got), 4 * rows[i].budget);
        /* The first has M = 96 = 1.5 B, the others M = 192 or 102 = 3 B: only the first meets its bound. */
        if (i > 0)
            assert_memory_equal(got, rows[i].want, sizeof got);
    }
    layers_with(rows[0].e, 4, 64, 8, "compresskv:max_factor=1.5", got);
    assert_memory_equal(got, rows[0].want, sizeof got);
    /* Below m: at least max(w + 1, B / 2). */
    assert_int_equal(layers_with(rows[2].e, 4, 20, 8, "compresskv", got), 80);
    for (int i = 1; i < 4; i++)
        assert_in_range(got[i], 10, 11);
    assert_int_equal(layers_with(rows[2].e, 4, 12, 8, "compresskv", got), 48);
    assert_int_equal(got[3], 9);
    assert_int_equal(layers_with(rows[2].e, 4, 32, 8, "compresskv", got), 128);
    assert_int_equal(got[0], 32);
    /* A window wider than m. */
    assert_int_equal(layers_with(rows[2].e, 4, 80, 64, "compresskv", got), 320);
    assert_int_equal(got[1], 65);
    /* No layer differs, one layer alone, shares of nothing. */
    static const double flat[4] = {.25, .25, .25, .25}, none[4] = {0};
    assert_int_equal(layers_with(flat, 4, 50, 8, "compresskv", got), 200);
    assert_int_equal(got[0], 50);
    assert_int_equal(layers_with(flat, 1, 50, 8, "compresskv", got), 50);
    assert_int_equal(layers_with(none, 4, 50, 8, "compresskv", got), 200);
    assert_int_equal(got[3], 50);
}

/* Mean shares of the released calibrations and the budgets they give. */
static const double llama[32] = {.0184088, .0190427, .0362661, .0281400, .0280051, .0368024, .0260612,
                                 .0306882, .0442179, .0426211, .0438660, .0395085, .0181534, .0430264,
                                 .0374242, .0377084, .0302794, .0354294, .0346320, .0362078, .0420334,
                                 .0252121, .0346444, .0375513, .0339916, .0289249, .0283567, .0319147,
                                 .0222212, .0182378, .0233645, .0070585};
static const double mistral[32] = {.0311308, .0132380, .0380914, .0166950, .0301092, .0292927, .0291126,
                                   .0418988, .0222702, .0449288, .0241505, .0363675, .0454860, .0219442,
                                   .0386391, .0449205, .0353801, .0246404, .0401568, .0326085, .0336375,
                                   .0309712, .0326778, .0263787, .0305453, .0307827, .0320398, .0192782,
                                   .0314968, .0218859, .0283479, .0408970};

/* No layer can have more than there is: what a share gives it above that goes to the others. */
static void error_aware_within_the_cache(void **state)
{
    (void)state;
    int32_t got[32];
    /* n = 100, B = 90, m = 32, free (360 - 128) = 232: 32 + [116, 70, 35, 12] = 148, 102, 67, 44; M = 100
     * leaves 100, 100, 67, 44 and 49 to hand out: 24 passes to layers 2 and 3 make 91 and 68, the last entry
     * goes to layer 2, which has the larger share. */
    static const double e[4] = {.5, .3, .15, .05};
    assert_int_equal(layers_of(e, 4, 100, 90, 8, "compresskv", got), 360);
    assert_memory_equal(got, ((const int32_t[]){100, 100, 92, 68}), 4 * sizeof *got);
    /* A ratio of 0.1 of 4096 tokens is 3686 a layer; the shares would give up to 5202 of them. */
    assert_int_equal(layers_of(llama, 32, 4096, 3686, 8, "compresskv", got), 32 * 3686);
    int n_full = 0;
    for (int i = 0; i < 32; i++) {
        assert_in_range(got[i], 32, 4096);
        n_full += got[i] == 4096;
    }
    assert_in_range(n_full, 13, 31);
    /* And in a plan nothing is lost. */
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 4, 2, 2, 200, false);
    memcpy(f.profile.layer_share, e, sizeof e);
    const wnw_size size = size_ratio(0.1);
    plan = fake_planned(&f, "compresskv", &size, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 4 * 2 * 180);
    wnw_plan_free(plan);
    fake_free(&f);
}

static void error_aware_released(void **state)
{
    (void)state;
    static const int32_t want[4][32] = {
        {89,  90,  143, 118, 118, 145, 112, 126, 169, 163, 168, 153, 88,  165, 147, 148,
         125, 141, 138, 143, 161, 109, 138, 147, 136, 121, 119, 130, 100, 88,  104, 54},
        {164, 168, 292, 234, 233, 296, 219, 252, 350, 338, 346, 315, 162, 340, 300, 302,
         249, 286, 280, 292, 333, 213, 280, 301, 276, 239, 235, 261, 191, 163, 199, 83},
        {128, 73,  149, 83,  124, 122, 121, 161, 100, 170, 106, 144, 173, 99, 151, 170,
         141, 108, 155, 132, 135, 127, 132, 113, 126, 127, 130, 91,  129, 99, 119, 158},
        {255, 126, 305, 151, 248, 242, 241, 332, 192, 354, 205, 293, 358, 189, 309, 354,
         286, 209, 320, 266, 273, 254, 266, 221, 251, 253, 262, 170, 258, 189, 235, 325}};
    int32_t got[32];
    for (int i = 0; i < 4; i++) {
        const int32_t budget = i % 2 ? 256 : 128;
        assert_int_equal(layers_with(i < 2 ? llama : mistral, 32, budget, 8, "compresskv", got), 32 * budget);
        assert_memory_equal(got, want[i], sizeof got);
    }
}

/* The straightforward loop: one entry at a time, with a new sort for every pass. */
static void slow(const double *e, int32_t n, int32_t m, int32_t max, int64_t total, int32_t *b)
{
    int64_t diff = total;
    for (int32_t i = 0; i < n; i++) {
        const double x = m + nearbyint(e[i] * (double)(total - (int64_t)n * m));
        b[i] = x < m ? m : x > max ? max : (int32_t)x;
        diff -= b[i];
    }
    while (diff != 0) {
        bool done[64] = {false}, any = false;
        const bool up = diff > 0;
        int32_t open = 0;
        for (int32_t i = 0; i < n; i++) {
            done[i] = b[i] == (up ? max : m);
            open += !done[i];
        }
        for (; open > 0 && diff != 0; open--) {
            int32_t best = -1;
            for (int32_t i = 0; i < n; i++)
                if (!done[i] && (best < 0 || (up ? e[i] > e[best] : e[i] < e[best])))
                    best = i;
            done[best] = any = true;
            b[best] += up ? 1 : -1;
            diff += up ? -1 : 1;
        }
        if (!any)
            break;
    }
}

static void error_aware_equals_the_slow_loop(void **state)
{
    (void)state;
    int32_t got[64], want[64];
    double e[64];
    srand(11);
    for (int round = 0; round < 3000; round++) {
        const int32_t n = 1 + rand() % 40, budget = 32 + rand() % 500;
        const bool ties = rand() % 2, steep = rand() % 2;
        double sum = 0;
        for (int32_t i = 0; i < n; i++) {
            const double x = ties ? (double)(rand() % 4) : (double)rand() / RAND_MAX;
            sum += e[i] = steep ? x * x * x * x * x : x;
        }
        if (sum == 0)
            continue;
        for (int32_t i = 0; i < n; i++)
            e[i] /= sum;
        double again = 0; /* shares are scaled once more, by almost 1 */
        for (int32_t i = 0; i < n; i++)
            again += e[i];
        for (int32_t i = 0; i < n; i++)
            want[i] = 0;
        double scaled[64];
        for (int32_t i = 0; i < n; i++)
            scaled[i] = e[i] / again;
        slow(scaled, n, 32, 3 * budget, (int64_t)n * budget, want);
        assert_int_equal(layers_with(e, n, budget, 8, "compresskv", got), (int64_t)n * budget);
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
    }
}

/* Layers with a sliding window take no part: shares are looked up by the model's layer and scaled. */
static void error_aware_skips_sliding_layers(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 6, 2, 2, 400, false);
    fake_leave_alone(&f, 0x2d); /* layers 1 and 4 take part */
    for (int il = 0; il < 6; il++)
        f.profile.layer_share[il] = il == 1 ? 0.03 : il == 4 ? 0.01 : 0.24;
    const wnw_size size = size_budget(64);
    plan = fake_planned(&f, "compresskv", &size, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 2 * 2 * 64);
    assert_int_equal(fake_kept(plan, 1, 0), 32 + 48);
    assert_int_equal(fake_kept(plan, 4, 0), 32 + 16);
    wnw_plan_free(plan);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ranked_heads_choose),
        cmocka_unit_test(profile_is_needed_where_it_is_used),
        cmocka_unit_test(random_heads),
        cmocka_unit_test(one_list_per_layer),
        cmocka_unit_test(small_budgets),
        cmocka_unit_test(error_aware_vectors),
        cmocka_unit_test(only_heads_that_choose_are_observed),
        cmocka_unit_test(error_aware_within_the_cache),
        cmocka_unit_test(error_aware_released),
        cmocka_unit_test(error_aware_equals_the_slow_loop),
        cmocka_unit_test(error_aware_skips_sliding_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
