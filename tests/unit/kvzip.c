/* SPDX-License-Identifier: MIT */
/* KVzip and the chat header: which of it stays, worked out by hand on 2 layers of 2 heads. */
#include "fake_source.h"

#include <stdio.h>
#include <string.h>

#include "peek_plan.h"
#include "scoring.h"
#include "winnow_calibrate.h"

enum { N_LAYER = 2, N_HEAD = 2, N = 10, HEADER = 6 };

/* Observations from arrays: scores[n_layer][n_head][n] at positions pos[..][n]. */
struct source {
    struct wnw__plan_source src; /* first: the callbacks get its address */
    int32_t n;
    const float *score;
    const int32_t *pos;
    int32_t n_entry[N_HEAD];
    int64_t off[N_HEAD];
};

static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct source *s = (const struct source *)src;
    return s->pos + (il * N_HEAD + ih) * s->n;
}

static struct wnw__plan_layer layer(const struct wnw__plan_source *src, int32_t il)
{
    const struct source *s = (const struct source *)src;
    return (struct wnw__plan_layer){.n_entry = s->n_entry, .pos = positions(src, il, 0), .off = s->off};
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs, const bool *heads,
                   wnw_observation *obs)
{
    (void)heads;
    const struct source *s = (const struct source *)src;
    const float *score = s->score + il * N_HEAD * s->n;
    assert_int_equal(needs->flags, WNW_NEED_SECOND_PASS);
    *obs = (wnw_observation){.il = il,
                             .n_layer = N_LAYER,
                             .n_head = N_HEAD,
                             .n_head_kv = N_HEAD,
                             .n = s->n,
                             .n_past = src->n_past,
                             .n_entry = s->n_entry,
                             .pos = positions(src, il, 0),
                             .pass2_max = score,
                             .pass2_sum = score,
                             .n_pass2 = 4};
    return WNW_OK;
}

static struct source source_of(const float *score, const int32_t *pos, int32_t n, int32_t n_prefix)
{
    return (struct source){.src = {.shape = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = N_HEAD},
                                   .n_past = 12,
                                   .n_prefix = n_prefix,
                                   .entry_bytes = {.each = 4},
                                   .layer = layer,
                                   .observe = observe},
                           .n = n,
                           .score = score,
                           .pos = pos,
                           .n_entry = {n, n},
                           .off = {0, n}};
}

/* As the pass writes them with a header of 6: no scores there, scores in the context. */
static const float scores[N_LAYER][N_HEAD][N] = {
    {{0, 0, 0, 0, 0, 0, 0.9f, 0.1f, 0.2f, 0.3f}, {0, 0, 0, 0, 0, 0, 0.05f, 0.06f, 0.07f, 0.5f}},
    {{0, 0, 0, 0, 0, 0, 0.01f, 0.02f, 0.03f, 0.04f}, {0, 0, 0, 0, 0, 0, 0.8f, 0.7f, 0.6f, 0.55f}},
};
#define ROW 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
static const int32_t all_pos[] = {ROW, ROW, ROW, ROW};
#undef ROW

static int plan_of(wnw_plan **plan, const struct source *s, const char *recipe, const wnw_size *size,
                   wnw_report *report)
{
    wnw_policy *p = test_policy(recipe);
    const int rc = wnw__plan_make(plan, p, size, &s->src, report);
    wnw_policy_free(p);
    return rc;
}

/* want[layer * 2 + head]: kept positions in words, "0 1 2 6". */
static void assert_plan(const struct source *s, const char *recipe, wnw_size size, const char *warning,
                        const char *const want[N_LAYER * N_HEAD])
{
    wnw_plan *plan = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    if (plan_of(&plan, s, recipe, &size, &report) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    for (int i = 0; i < N_LAYER * N_HEAD; i++) {
        char got[64] = "";
        const int32_t *pos;
        const int32_t n = wnw_plan_head(plan, i / N_HEAD, i % N_HEAD, &pos);
        for (int32_t k = 0; k < n; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", k > 0 ? " " : "", (int)pos[k]);
        if (strcmp(got, want[i]) != 0)
            fail_msg("%s, layer %d head %d: %s, expected %s", recipe, i / N_HEAD, i % N_HEAD, got, want[i]);
    }
    if (warning ? !strstr(report.warning, warning) : report.warning[0] != '\0')
        fail_msg("%s: warning \"%s\"", recipe, report.warning);
    wnw_plan_free(plan);
}

/* The header of 6 in every head, then the best of the context: 4 x 7 = 24 + 4. */
static void header_stays(void **state)
{
    (void)state;
    const struct source s = source_of(scores[0][0], all_pos, N, HEADER);
    assert_plan(&s, "kvzip", size_budget(7), NULL,
                (const char *const[]){"0 1 2 3 4 5 6", "0 1 2 3 4 5", "0 1 2 3 4 5", "0 1 2 3 4 5 6 7 8"});
    assert_plan(&s, "kvzip", size_ratio(0.3), NULL,
                (const char *const[]){"0 1 2 3 4 5 6", "0 1 2 3 4 5", "0 1 2 3 4 5", "0 1 2 3 4 5 6 7 8"});
    assert_plan(&s, "kvzip:pool=layer", size_budget(7), NULL,
                (const char *const[]){"0 1 2 3 4 5 6", "0 1 2 3 4 5 9", "0 1 2 3 4 5", "0 1 2 3 4 5 6 7"});
    assert_plan(&s, "kvzip-uniform", size_budget(7), NULL,
                (const char *const[]){"0 1 2 3 4 5 6", "0 1 2 3 4 5 9", "0 1 2 3 4 5 9", "0 1 2 3 4 5 6"});
    /* A header shorter than the sinks is all that stays by rule: 4 x 3 = 8 + 4. */
    const struct source two = source_of(scores[0][0], all_pos, N, 2);
    assert_plan(&two, "kvzip", size_budget(3), NULL,
                (const char *const[]){"0 1 6", "0 1", "0 1", "0 1 6 7 8"});
}

/* Without a header, or where it is scored, sinks stay. */
static void sinks_without_header(void **state)
{
    (void)state;
    static const char *const want[] = {"0 1 2 3 6", "0 1 2 3", "0 1 2 3", "0 1 2 3 6 7 8"};
    const struct source none = source_of(scores[0][0], all_pos, N, 0),
                        header = source_of(scores[0][0], all_pos, N, HEADER);
    assert_plan(&none, "kvzip", size_budget(5), NULL, want);
    assert_plan(&none, "kvzip:prefix=score", size_budget(5), NULL, want);
    assert_plan(&header, "kvzip:prefix=score", size_budget(5), NULL, want);
}

/* kvpress: of the header positions < min(4, n_p) stay, the others have score 0 and go first; with floor(40 r)
 * entries removed. */
static void kvpress_header(void **state)
{
    (void)state;
    const struct source six = source_of(scores[0][0], all_pos, N, HEADER),
                        two = source_of(scores[0][0], all_pos, N, 2),
                        none = source_of(scores[0][0], all_pos, N, 0);
    /* 20 = 16 + 4 */
    assert_plan(&six, "kvpress-kvzip", size_ratio(0.5), NULL,
                (const char *const[]){"0 1 2 3 6", "0 1 2 3", "0 1 2 3", "0 1 2 3 6 7 8"});
    /* 36 = 16 + 16 + 4 of the header's 8 others, in the order of heads */
    assert_plan(&six, "kvpress-kvzip", size_ratio(0.1), NULL,
                (const char *const[]){"0 1 2 3 4 5 6 7 8 9", "0 1 2 3 4 5 6 7 8 9", "0 1 2 3 6 7 8 9",
                                      "0 1 2 3 6 7 8 9"});
    /* 12 = 8 + 4 */
    assert_plan(&two, "kvpress-kvzip", size_ratio(0.7), NULL,
                (const char *const[]){"0 1 6", "0 1", "0 1", "0 1 6 7 8"});
    /* 6 = 40 - 34 */
    assert_plan(&none, "kvpress-kvzip", size_ratio(0.85), NULL,
                (const char *const[]){"6", "9", "", "6 7 8 9"});
}

/* A size that cannot hold the header. */
static void small_sizes(void **state)
{
    (void)state;
    const struct source s = source_of(scores[0][0], all_pos, N, HEADER);
    wnw_plan *plan = NULL;
    static const char header[] = "0 1 2 3 4 5";
    const wnw_size five[] = {size_budget(5), size_bytes(4 * 4 * 5)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan_of(&plan, &s, "kvzip", &five[i], NULL), WNW_E_RANGE);
        assert_says("allow at least 6");
        assert_null(plan);
    }
    /* Just the header. */
    assert_plan(&s, "kvzip", size_budget(6), NULL, (const char *const[]){header, header, header, header});
    assert_plan(&s, "kvzip", size_bytes(4 * 4 * 6), NULL,
                (const char *const[]){header, header, header, header});
    /* A ratio leaves 5: half of them are the header's, 20 = 8 + 12. */
    assert_plan(&s, "kvzip", size_ratio(0.5), "sinks shrink, to the first 2 and the last 0",
                (const char *const[]){"0 1 6 7 8 9", "0 1 6 7 8 9", "0 1", "0 1 6 7 8 9"});
    /* Nothing but header. */
    const struct source all = source_of(scores[0][0], all_pos, N, N);
    const wnw_size seven = size_budget(7);
    assert_int_equal(plan_of(&plan, &all, "kvzip", &seven, NULL), WNW_E_RANGE);
    const wnw_size ten = size_budget(10);
    assert_int_equal(plan_of(&plan, &all, "kvzip", &ten, NULL), WNW_OK);
    wnw_plan_free(plan);
}

/* After another policy heads hold other parts of the header: what they have of it stays. 12 = 2 + 1 + 0 + 3,
 * 1 that every head keeps, and 5. */
static void rest_of_a_header(void **state)
{
    (void)state;
    static const int32_t pos[] = {0, 1, 6, 7, 8, 9, 5, 6, 7, 8, 9, 10, 6, 7, 8, 9, 10, 11, 0, 2, 4, 6, 7, 8};
    static const float score[] = {0,      0,      0.9f, 0.1f,  0.2f,  0.3f,  0,     0.05f,
                                  0.06f,  0.07f,  0.5f, 0.01f, 0.01f, 0.02f, 0.03f, 0.04f,
                                  0.015f, 0.001f, 0,    0,     0,     0.8f,  0.7f,  0.6f};
    const struct source s = source_of(score, pos, 6, HEADER);
    assert_plan(&s, "kvzip", size_budget(3), NULL, (const char *const[]){"0 1 6", "5 9", "9", "0 2 4 6 7 8"});
}

/* With every budget the header stays and the total is exact. */
static void every_budget(void **state)
{
    (void)state;
    static const char *const recipes[] = {"kvzip",
                                          "kvzip:pool=layer",
                                          "kvzip-uniform",
                                          "kvzip-uniform+adakv",
                                          "kvzip-uniform+composite",
                                          "kvzip+critical",
                                          "kvzip-uniform+pyramid",
                                          "kvzip-uniform+adakv+critical"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int ragged = 0; ragged < 2; ragged++) {
            struct fake f;
            wnw_plan *plan = NULL;
            const wnw_size size = size_budget(20);
            fake_init(&f, 4, 3, 2, 61, ragged);
            f.src.n_prefix = 12;
            plan = fake_planned(&f, recipes[i], &size, NULL);
            const int64_t kept = fake_check_plan(plan, &f);
            if (!ragged)
                assert_int_equal(kept, 20 * 4 * 3);
            for (int32_t il = 0; il < 4; il++)
                for (int32_t ih = 0; ih < 3; ih++)
                    for (int32_t k = 0; k < f.n_entry[il][ih]; k++) {
                        const int32_t p = f.pos[(il * 3 + ih) * f.n + k];
                        if (p < 12 && !fake_holds(plan, il, ih, p))
                            fail_msg("%s%s: position %d of the header is gone", recipes[i],
                                     ragged ? ", ragged" : "", (int)p);
                    }
            wnw_plan_free(plan);
            fake_free(&f);
        }
}

static void passes(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        int32_t pass;
    } row[] = {{"kvzip", WNW_PASS_REPEAT},
               {"kvzip-uniform", WNW_PASS_REPEAT},
               {"kvzip:prefix=score", WNW_PASS_REPEAT_ALL},
               {"kvpress-kvzip", WNW_PASS_REPEAT_SINKS}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        wnw_policy *p = test_policy(row[i].recipe);
        assert_int_equal(wnw_policy_needs(p).second_pass, row[i].pass);
        wnw_policy_free(p);
    }
}

/* Scorers from outside see the header too; nothing of it stays by itself. */
static int score_header_low(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n; i++)
            score[ih * obs->n + i] = obs->pos[ih * obs->n + i] < obs->n_prefix ? 0.0f : 1.0f;
    return WNW_OK;
}

static void pass_wanted(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
}

static void scorer_from_outside(void **state)
{
    (void)state;
    static const wnw_scorer low = {.part = {WNW_SCORER_INIT, .name = "low", .needs = pass_wanted},
                                   .score = score_header_low};
    const struct source s = source_of(scores[0][0], all_pos, N, HEADER);
    const wnw_size four = size_budget(4);
    wnw_policy *p = test_policy_with(&low.part, NULL);
    wnw_plan *plan = NULL;
    assert_int_equal(wnw__plan_make(&plan, p, &four, &s.src, NULL), WNW_OK);
    for (int i = 0; i < N_LAYER * N_HEAD; i++) {
        const int32_t *pos;
        assert_int_equal(wnw_plan_head(plan, i / N_HEAD, i % N_HEAD, &pos), 4);
        assert_int_equal(pos[0], HEADER);
    }
    wnw_plan_free(plan);
    wnw_policy_free(p);
}

/* ---- Norms: 3 query heads, 1 KV head, 2 entries and one of padding, in layer 1 ---- */

static const float *norms_of_heads(const wnw_observation *obs, wnw_proj_norm kind)
{
    static const float norm[] = {2, 4, 99, 1, 3, 99, 0.5f, 8, 99};
    (void)obs;
    assert_int_equal(kind, WNW_PROJ_L2);
    return norm;
}

static void norms(void **state)
{
    (void)state;
    static const float p[] = {0.5f, 0.25f, 0.75f, 1, 0.125f, 0.75f, 0.5f, 0.25f, 0.75f};
    const int32_t n_entry[] = {2}, pos[] = {0, 1, -1};
    double gradient[] = {7, 0.5};
    const wnw_profile profile = {.kinds = 1u << WNW_PROFILE_GRADIENT, .layer_gradient = gradient};
    const wnw_observation obs = {.il = 1,
                                 .n_layer = 2,
                                 .n_head = 3,
                                 .n_head_kv = 1,
                                 .n_embd_head = 2,
                                 .n = 3,
                                 .n_past = 2,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .pass2_max = p,
                                 .pass2_sum = p,
                                 .n_pass2 = 4,
                                 .head_proj_norm = norms_of_heads,
                                 .profile = &profile};
    float got[3];
    run_scorer("kvzip", &obs, got);
    assert_near(got[0], 1, 0);
    assert_near(got[1], 0.25, 0);
    /* The largest of 0.5 x 2, 1 x 1, 0.5 x 0.5 and of 0.25 x 4, 0.125 x 3, 0.25 x 8. */
    run_scorer("kvzip:norm=output", &obs, got);
    assert_near(got[0], 1, 0);
    assert_near(got[1], 2, 0);
    /* The same times the factor of layer 1. */
    run_scorer("kvzip:norm=gradient", &obs, got);
    assert_near(got[0], 0.5, 0);
    assert_near(got[1], 1, 0);
    /* Only KVzip+ has the attention divided while it is recorded. */
    wnw_policy *plus = test_policy("kvzip:norm=output"), *with = test_policy("kvzip:norm=gradient");
    assert_int_equal(wnw_policy_needs(plus).second_pass, WNW_PASS_REPEAT | WNW_PASS_BY_INPUT);
    assert_int_equal(wnw_policy_needs(plus).profiles, 0);
    assert_int_equal(wnw_policy_needs(with).second_pass, WNW_PASS_REPEAT);
    assert_int_equal(wnw_policy_needs(with).profiles, 1u << WNW_PROFILE_GRADIENT);
    wnw_policy_free(plus);
    wnw_policy_free(with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_stays),
        cmocka_unit_test(sinks_without_header),
        cmocka_unit_test(kvpress_header),
        cmocka_unit_test(small_sizes),
        cmocka_unit_test(rest_of_a_header),
        cmocka_unit_test(every_budget),
        cmocka_unit_test(passes),
        cmocka_unit_test(scorer_from_outside),
        cmocka_unit_test(norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
