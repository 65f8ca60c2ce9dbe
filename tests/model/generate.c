/* SPDX-License-Identifier: MIT */
/* wnw_generate: the tokens of a loop by hand, and every end. */
#include "helpers.h"
#include "peek_prompt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24, N_PROMPT = 40 };

struct fixture {
    struct test_model t;
    wnw_sampler *greedy;
    int32_t want[N]; /* by hand */
    char *text;      /* theirs, in full */
};

static wnw_session *session(const struct fixture *f, int32_t n_ctx)
{
    wnw_session *s = test_session_new(f->t.m, &(struct test_session){.n_ctx = n_ctx});
    test_prefill(s, f->t.tokens, N_PROMPT);
    return s;
}

static void open_fixture(struct fixture *f)
{
    test_open(&f->t, "smollm2-135m.gguf", N_PROMPT, 3);
    assert_ok(wnw_sampler_new(&f->greedy, NULL));
    wnw_session *s = session(f, 256);
    for (int i = 0; i < N; i++) {
        f->want[i] = test_argmax(wnw_session_logits(s), f->t.info.n_vocab);
        assert_false(wnw_token_is_eog(f->t.m, f->want[i]));
        assert_ok(wnw_session_decode(s, f->want[i]));
    }
    assert_ok(wnw_detokenize(f->t.m, f->want, N, &f->text));
    wnw_session_free(s);
}

static void close_fixture(struct fixture *f)
{
    wnw_free(f->text);
    wnw_sampler_free(f->greedy);
    test_close(&f->t);
}

/* What a callback was given. */
struct heard {
    char text[1024];
    int32_t n_calls, n_tokens;
    int32_t most; /* cancels at this token; 0 = never */
};

static bool hear(const char *text, size_t n_bytes, int32_t n_tokens, void *user)
{
    struct heard *h = user;
    const size_t n = strlen(h->text);
    assert_cmp(n + n_bytes, <, sizeof h->text);
    memcpy(h->text + n, text, n_bytes);
    h->n_calls++;
    h->n_tokens = n_tokens;
    return h->most == 0 || n_tokens < h->most;
}

/* Generates, and checks what holds at every end. */
static wnw_generated generated(const struct fixture *f, wnw_session *s, wnw_generate_params p,
                               struct heard *h)
{
    wnw_generated g = wnw_generated_default();
    const int32_t n_past = wnw_session_n_past(s);
    *h = (struct heard){.most = h->most};
    p.on_text = hear;
    p.user = h;
    assert_ok(wnw_generate(&g, s, f->greedy, &p));
    assert_int_equal(wnw_session_n_past(s), n_past + g.n_read);
    assert_memory_equal(g.tokens, f->want, (size_t)g.n_tokens * sizeof *g.tokens);
    assert_int_equal(h->n_tokens, g.n_tokens);
    assert_in_range(h->n_calls, g.n_tokens, g.n_tokens + 1);
    assert_int_equal(g.n_text, strlen(g.text));
    if (g.end != WNW_END_CANCELLED)
        assert_string_equal(h->text, g.text);
    return g;
}

static void ends(void **state)
{
    (void)state;
    struct fixture f;
    struct heard h = {0};
    open_fixture(&f);

    wnw_session *s = session(&f, 256);
    wnw_generated g = generated(&f, s, (wnw_generate_params){WNW_INIT(wnw_generate_params), .n_max = N}, &h);
    assert_int_equal(g.end, WNW_END_LIMIT);
    assert_int_equal(g.n_tokens, N);
    assert_int_equal(g.n_read, N - 1);
    assert_string_equal(g.text, f.text); /* both are UTF-8 */
    wnw_generated_clear(&g);
    assert_null(g.tokens);
    wnw_session_free(s);

    h.most = 5;
    s = session(&f, 256);
    g = generated(&f, s, wnw_generate_default_params(), &h);
    assert_int_equal(g.end, WNW_END_CANCELLED);
    assert_int_equal(g.n_tokens, 5);
    wnw_generated_clear(&g);
    wnw_session_free(s);

    h.most = 0;
    s = session(&f, N_PROMPT + 7);
    g = generated(&f, s, wnw_generate_default_params(), &h);
    assert_int_equal(g.end, WNW_END_FULL);
    assert_int_equal(g.n_tokens, 8);
    assert_int_equal(g.n_read, 7);
    wnw_generated_clear(&g);
    wnw_session_free(s);
    close_fixture(&f);
}

/* A stop string that begins in one token and ends in another. */
static void stop_string(void **state)
{
    (void)state;
    struct fixture f;
    struct heard h = {0};
    open_fixture(&f);
    char stop[8] = {0};
    char *before;
    int n = 1;
    for (; n < N - 4; n++) { /* three letters around the border of tokens n - 1 and n, not seen before */
        assert_ok(wnw_detokenize(f.t.m, f.want, n, &before));
        const size_t at = strlen(before);
        stop[0] = f.text[at - 1];
        stop[1] = f.text[at];
        stop[2] = f.text[at + 1];
        wnw_free(before);
        if (strstr(f.text, stop) == f.text + at - 1)
            break;
    }
    assert_cmp(n, <, N - 4);
    const size_t n_text = (size_t)(strstr(f.text, stop) - f.text);
    const char *const stops[] = {"never said", stop};
    wnw_session *s = session(&f, 256);
    wnw_generated g = generated(
        &f, s, (wnw_generate_params){WNW_INIT(wnw_generate_params), .n_max = N, .stop = stops, .n_stop = 2},
        &h);
    assert_int_equal(g.end, WNW_END_STOP);
    assert_int_equal(g.n_text, n_text);
    assert_memory_equal(g.text, f.text, n_text);
    assert_cmp(g.n_tokens, <=, n + 3);
    wnw_generated_clear(&g);
    wnw_session_free(s);
    close_fixture(&f);
}

/* The answer to a question, which ends by itself or after 100 tokens; s is freed by the caller. */
static wnw_generated answer_to(const struct fixture *f, const char *question, wnw_session **s)
{
    const wnw_prompt_params how = {WNW_INIT(wnw_prompt_params), .question = question, .now = 1};
    const wnw_generate_params most = {WNW_INIT(wnw_generate_params), .n_max = 100};
    wnw_prompt *p = NULL;
    wnw_generated g = wnw_generated_default();
    *s = test_session_new(f->t.m, &(struct test_session){.n_ctx = 512});
    assert_ok(wnw_prompt_build(&p, f->t.m, &how));
    test_prefill(*s, p->tokens, p->n_tokens);
    assert_ok(wnw_generate(&g, *s, f->greedy, &most));
    wnw_prompt_free(p);
    return g;
}

/* The model ends its turn itself; the token that says so is neither in the result nor read. Which questions it answers
 * shortly depends on the rounding of the kernels, that it does so for one of several does not. */
static void end_of_turn(void **state)
{
    static const char *const questions[] = {
        "Say yes and nothing else.",      "What is 1 + 1?", "Hello!", "Say hi.",
        "What is the capital of France?", "Thank you."};
    (void)state;
    struct fixture f;
    int n_ended = 0;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        wnw_session *s;
        wnw_generated g = answer_to(&f, questions[i], &s);
        assert_true(g.end == WNW_END_TOKEN || g.end == WNW_END_LIMIT);
        assert_cmp(g.n_tokens, >, 0);
        if (g.end == WNW_END_TOKEN) {
            n_ended++;
            assert_int_equal(g.n_read, g.n_tokens);
            assert_true(wnw_token_is_eog(f.t.m, test_argmax(wnw_session_logits(s), f.t.info.n_vocab)));
        }
        for (int32_t k = 0; k < g.n_tokens; k++)
            assert_false(wnw_token_is_eog(f.t.m, g.tokens[k]));
        wnw_generated_clear(&g);
        wnw_session_free(s);
    }
    assert_cmp(n_ended, >, 0);
    close_fixture(&f);
}

static void refused(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    wnw_generated g = wnw_generated_default();
    wnw_session *s = session(&f, 256), *empty = test_session_new(f.t.m, &(struct test_session){.n_ctx = 256});
    const char *const stops[] = {"a", ""};
    wnw_generate_params p = wnw_generate_default_params();
    assert_int_equal(wnw_generate(&g, empty, f.greedy, &p), WNW_E_ARG);
    assert_int_equal(wnw_generate(NULL, s, f.greedy, &p), WNW_E_ARG);
    assert_int_equal(wnw_generate(&g, NULL, f.greedy, &p), WNW_E_ARG);
    assert_int_equal(wnw_generate(&g, s, NULL, &p), WNW_E_ARG);
    p.n_max = -1;
    assert_int_equal(wnw_generate(&g, s, f.greedy, &p), WNW_E_RANGE);
    p = (wnw_generate_params){WNW_INIT(wnw_generate_params), .stop = stops, .n_stop = 2};
    assert_int_equal(wnw_generate(&g, s, f.greedy, &p), WNW_E_RANGE);
    p.stop = NULL;
    assert_int_equal(wnw_generate(&g, s, f.greedy, &p), WNW_E_ARG);
    assert_null(g.tokens);
    /* A session that went back reads something first. */
    assert_ok(wnw_session_rewind(s, 10));
    assert_int_equal(wnw_generate(&g, s, f.greedy, NULL), WNW_E_ARG);
    wnw_generated_clear(&g);
    wnw_generated_clear(NULL);
    wnw_session_free(empty);
    wnw_session_free(s);
    close_fixture(&f);
}

/* Picks from logits {2, 1.5, -1} with a penalty of 2: token 0; then 2 / 2 = 1 < 1.5: token 1; then 1 > 0.75 > -1: token 0 again. */
static void penalty(void **state)
{
    const float logits[] = {2.0f, 1.5f, -1.0f}, negative[] = {-1.0f, -1.5f, -9.0f};
    const float wrong[] = {0.5f, -1.0f, NAN, INFINITY};
    wnw_sampler_params params = wnw_sampler_default_params();
    wnw_sampler *sp;
    (void)state;
    params.repeat_penalty = 2.0f;
    assert_ok(wnw_sampler_new(&sp, &params));
    assert_int_equal(wnw_sampler_pick(sp, logits, 3), 0);
    assert_int_equal(wnw_sampler_pick(sp, logits, 3), 1);
    assert_int_equal(wnw_sampler_pick(sp, logits, 3), 0);
    wnw_sampler_free(sp);
    /* A negative logit is multiplied: -2 < -1.5. */
    assert_ok(wnw_sampler_new(&sp, &params));
    assert_int_equal(wnw_sampler_pick(sp, negative, 3), 0);
    assert_int_equal(wnw_sampler_pick(sp, negative, 3), 1);
    wnw_sampler_free(sp);
    for (int i = 0; i < 2; i++) { /* off */
        params.repeat_penalty = (float)i;
        assert_ok(wnw_sampler_new(&sp, &params));
        assert_int_equal(wnw_sampler_pick(sp, logits, 3), 0);
        assert_int_equal(wnw_sampler_pick(sp, logits, 3), 0);
        wnw_sampler_free(sp);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        params.repeat_penalty = wrong[i];
        assert_int_equal(wnw_sampler_new(&sp, &params), WNW_E_RANGE);
        assert_null(sp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends), cmocka_unit_test(stop_string),
                                       cmocka_unit_test(end_of_turn), cmocka_unit_test(refused),
                                       cmocka_unit_test(penalty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
