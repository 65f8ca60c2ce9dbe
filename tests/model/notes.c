/* SPDX-License-Identifier: MIT */
/*
 * What a selector notes of an entry comes back with it at the next compression, in every phase, with copies, and
 * not after another policy; and the averages of ranks are those that the test computes itself.
 */
#include "helpers.h"
#include "sessions.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N = 48, EVERY = 8, STEPS = 4, KEEP = 24, N_CTX = 128 };

/* ---- A selector that notes positions ---- */

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_NOTES;
}

/* Keeps every entry with a note first, then the last ones, and notes position + 1 of all but every fourth. */
static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    (void)opts;
    (void)scratch;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t pos = p->obs->pos[(int64_t)p->ih * p->obs->n + i];
        const float before = p->obs->note[(int64_t)p->ih * p->obs->n + i];
        assert_true(isnan(p->note[i]));
        assert_true(isnan(before) || before == (float)(pos + 1));
        if (pos % 4 != 0)
            p->note[i] = (float)(pos + 1);
        if (i >= p->n - p->n_keep)
            keep[n++] = i;
    }
    return n;
}

static const wnw_selector notes_positions = {
    .part = {WNW_SELECTOR_INIT, .name = "notes_positions", .about = "Notes positions.", .needs = needs},
    .select = select_entries};

static wnw_policy *parse(const char *recipe)
{
    wnw_registry *r = NULL;
    wnw_policy *p = NULL;
    assert_ok(wnw_registry_new(&r));
    assert_ok(wnw_registry_add(r, &notes_positions.part));
    assert_ok(wnw_policy_parse(&p, recipe, r));
    wnw_registry_free(r);
    return p;
}

/* Entries that have a note; it is that of their position. */
static int32_t count_notes(const wnw_session *s)
{
    int32_t n = 0;
    for (int32_t il = 0; il < s->cache.n_layer && s->cache.aux_planes[WNW_AUX_NOTE] > 0; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const struct wnw__kv_layer *l = &s->cache.layers[il];
            const int32_t *pos = wnw_cache_positions(s, il, ih);
            for (int32_t i = 0; i < wnw_cache_n(s, il, ih); i++) {
                const float note = wnw__cache_aux(l, WNW_AUX_NOTE, 0)[l->off[ih] + i];
                assert_true(isnan(note) || note == (float)(pos[i] + 1));
                n += !isnan(note);
            }
        }
    return n;
}

static wnw_session *read_with(const struct test_model *fx, const wnw_policy *p, wnw_phase phase)
{
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    const wnw_run run = {WNW_INIT(wnw_run),
                         .policy = p,
                         .size = {.kind = WNW_SIZE_BUDGET, .budget = KEEP},
                         .phase = phase,
                         .chunk = phase == WNW_PHASE_CHUNK ? N / 3 : 0,
                         .every = EVERY};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, fx->tokens, N, NULL));
    return s;
}

static void come_back(void **state)
{
    const struct test_model *fx = *state;
    static const wnw_phase phases[] = {WNW_PHASE_END, WNW_PHASE_LAYER, WNW_PHASE_CHUNK};
    const int32_t heads = fx->info.n_layer * fx->info.n_head_kv;
    wnw_policy *p = parse("knorm+notes_positions");
    for (size_t k = 0; k < sizeof phases / sizeof *phases; k++) {
        wnw_session *s = read_with(fx, p, phases[k]), *copy;
        assert_int_equal(count_notes(s), heads * KEEP * 3 / 4);
        test_decode(s, fx->tokens + N, EVERY - 1);
        assert_int_equal(count_notes(s), heads * KEEP * 3 / 4); /* nothing is noted of what came later */
        assert_ok(wnw_session_copy(&copy, s));
        test_decode(s, fx->tokens + N + EVERY - 1, 1 + (STEPS - 1) * EVERY);
        test_decode(copy, fx->tokens + N + EVERY - 1, 1 + (STEPS - 1) * EVERY);
        assert_int_equal(count_notes(s), heads * KEEP * 3 / 4);
        assert_int_equal(count_notes(copy), heads * KEEP * 3 / 4);
        assert_same_cache(s, copy);
        wnw_session_free(copy);
        wnw_session_free(s);
    }
    wnw_policy_free(p);
}

/* A plan that is not applied notes nothing. */
static void planned_only(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *p = parse("knorm+notes_positions");
    wnw_session *s = test_session_read(fx->m, &(struct test_session){.n_ctx = N_CTX}, p, fx->tokens, N);
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = KEEP};
    wnw_plan *plan;
    assert_ok(wnw_session_plan(s, p, &size, &plan, NULL));
    assert_int_equal(count_notes(s), 0);
    assert_ok(wnw_session_apply(s, plan, NULL));
    assert_true(count_notes(s) > 0);
    wnw_plan_free(plan);
    wnw_session_free(s);
    wnw_policy_free(p);
}

static void end_with_the_policy(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *p = parse("knorm+notes_positions"), *other = test_policy("knorm");
    wnw_session *s = read_with(fx, p, WNW_PHASE_END);
    assert_true(count_notes(s) > 0);
    assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
    assert_true(count_notes(s) > 0); /* as for another size of the same policy */
    assert_ok(test_observe(s, (const wnw_policy *const[]){other}, 1));
    assert_int_equal(count_notes(s), 0);
    assert_int_equal(s->cache.aux_planes[WNW_AUX_NOTE], 0);
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_policy_free(other);
}

/* ---- Averages of ranks ---- */

/* A scorer whose order changes from one compression to the next. */
static double score_at(int32_t pos, int32_t n_past)
{
    return pos * 7 % (5 + n_past / EVERY);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] =
                (float)score_at(obs->pos[(int64_t)ih * obs->n + i], obs->n_past);
    return WNW_OK;
}

static const wnw_scorer turns = {
    .part = {WNW_SCORER_INIT, .name = "turns", .about = "An order that changes."}, .score = score};

struct entry {
    int32_t pos;
    double mean; /* NaN = never judged */
};

/* Compresses the entries to KEEP, as the formula says, in double. Returns how many stay. */
static int32_t compress_by_hand(struct entry *e, int32_t n, int32_t n_past)
{
    double mean[N_CTX];
    bool gone[N_CTX] = {false};
    for (int32_t i = 0; i < n; i++) {
        double higher = 0;
        for (int32_t j = 0; j < n; j++)
            higher += score_at(e[j].pos, n_past) > score_at(e[i].pos, n_past);
        mean[i] = isnan(e[i].mean) ? higher / n : higher / n / 2 + e[i].mean / 2;
    }
    for (int32_t left = n; left > KEEP; left--) {
        int32_t worst = -1;
        for (int32_t i = 0; i < n; i++)
            if (!gone[i] && (worst < 0 || (float)mean[i] >= (float)mean[worst]))
                worst = i;
        gone[worst] = true;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (!gone[i])
            e[kept++] = (struct entry){e[i].pos, (float)mean[i]};
    return kept;
}

static void averages(void **state)
{
    const struct test_model *fx = *state;
    wnw_registry *r = NULL;
    wnw_policy *p = NULL;
    struct entry e[N_CTX];
    int32_t n = 0;
    assert_ok(wnw_registry_new(&r));
    assert_ok(wnw_registry_add(r, &turns.part));
    assert_ok(wnw_policy_parse(&p, "turns+ranks", r));
    wnw_session *s = read_with(fx, p, WNW_PHASE_END);
    for (; n < N; n++)
        e[n] = (struct entry){n, NAN};
    n = compress_by_hand(e, n, N);
    for (int32_t step = 1; step <= STEPS; step++) {
        test_decode(s, fx->tokens + N + (step - 1) * EVERY, EVERY);
        for (int32_t i = 0; i < EVERY; i++)
            e[n++] = (struct entry){N + (step - 1) * EVERY + i, NAN};
        n = compress_by_hand(e, n, N + step * EVERY);
        assert_int_equal(wnw_cache_n(s, 0, 0), n);
        for (int32_t i = 0; i < n; i++)
            assert_int_equal(wnw_cache_positions(s, 0, 0)[i], e[i].pos);
    }
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_registry_free(r);
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up_tiny(state, &fx, "llama", N + STEPS * EVERY, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(come_back), cmocka_unit_test(planned_only),
                                       cmocka_unit_test(end_with_the_policy), cmocka_unit_test(averages)};
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
