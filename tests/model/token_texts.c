/* SPDX-License-Identifier: MIT */
/* The texts of tokens that parts see are those of the tokens at the entries' positions, whenever a session compresses. */
#include "helpers.h"
#include "sessions.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

enum { N = 48, N_MORE = 9, N_CTX = 128 };

/* What the part that compares was shown last; a part has no state of its own. */
static struct {
    const wnw_model *m;
    const int32_t *tokens;
    int32_t n_seen;
} shown;

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_TOKEN_TEXT;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
            const int32_t pos = obs->pos[(int64_t)ih * obs->n + i];
            char *text;
            assert_cmp(pos, <, obs->n_past);
            assert_ok(wnw_token_piece(shown.m, shown.tokens[pos], &text));
            assert_string_equal(obs->token_text[pos], text);
            wnw_free(text);
            score[(int64_t)ih * obs->n + i] = (float)(pos * 7 % 11);
        }
    shown.n_seen = obs->n_past;
    return WNW_OK;
}

static const wnw_scorer compares = {
    .part = {WNW_SCORER_INIT, .name = "compares", .about = "Compares texts with tokens.", .needs = needs},
    .score = score};

static wnw_policy *parse(const char *recipe)
{
    wnw_registry *r = NULL;
    wnw_policy *p = NULL;
    assert_ok(wnw_registry_new(&r));
    assert_ok(wnw_registry_add(r, &compares.part));
    assert_ok(wnw_policy_parse(&p, recipe, r));
    wnw_registry_free(r);
    return p;
}

static void texts(void **state)
{
    const struct test_model *fx = *state;
    static const wnw_phase phases[] = {WNW_PHASE_END, WNW_PHASE_LAYER, WNW_PHASE_CHUNK};
    for (size_t k = 0; k < sizeof phases / sizeof *phases; k++) {
        wnw_policy *p = parse("compares");
        wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = N_CTX, .n_ubatch = N / 2});
        wnw_run run = wnw_run_default();
        run.policy = p;
        run.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = N / 2};
        run.phase = phases[k];
        run.chunk = phases[k] == WNW_PHASE_CHUNK ? N / 3 : 0;
        run.every = N_MORE;
        shown.m = fx->m;
        shown.tokens = fx->tokens;
        assert_ok(wnw_session_begin(s, &run));
        assert_ok(wnw_session_read(s, fx->tokens, N, NULL));
        assert_int_equal(shown.n_seen, N);
        test_decode(s, fx->tokens + N, N_MORE);
        assert_int_equal(shown.n_seen, N + N_MORE);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
}

/* With new positions heads hold different tokens at one position: those have no text, and what is read later has. */
static void new_positions(void **state)
{
    const struct test_model *fx = *state;
    wnw_policy *policy = test_policy("knorm+demote+rerotate");
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = N_CTX});
    wnw_run run = wnw_run_default();
    run.policy = policy;
    run.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = N / 2};
    run.every = N_MORE;
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, fx->tokens, N, NULL));
    test_decode(s, fx->tokens + N, N_MORE);
    assert_int_equal(wnw_cache_n(s, 0, 0), N / 2);
    wnw_session_free(s);
    wnw_policy_free(policy);
}

static int set_up(void **state)
{
    static struct test_model fx;
    return test_set_up_tiny(state, &fx, "llama", N + N_MORE, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(new_positions)};
    return cmocka_run_group_tests(tests, set_up, test_tear_down);
}
