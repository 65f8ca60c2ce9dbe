/* SPDX-License-Identifier: MIT */
/* The ring of three calls: answers are those of the same steps by hand, a document is read once, and every refusal. */
#include "files.h"
#include "models.h"
#include "peek_prompt.h"
#include "winnow_method.h"
#include "winnow_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL  "tiny/chat/smollm2.gguf"
#define FIRST  "Which colour has the harbour?"
#define SECOND "And the ship?"

static const char document[] =
    "The harbour is red, the ship is blue, and the keeper of the tower has seven lamps that "
    "he lights when the fog comes in from the north. Nobody counts them in summer.";

struct heard {
    char s[8192];
    int32_t most; /* ends the answer after this number of tokens; 0 = never */
};

static bool hear(const char *text, size_t n_bytes, int32_t n_tokens, void *user)
{
    struct heard *t = user;
    const size_t n = strlen(t->s);
    assert_cmp(n + n_bytes, <, sizeof t->s);
    memcpy(t->s + n, text, n_bytes);
    return t->most == 0 || n_tokens < t->most;
}

static wnw_reader *open_reader(void)
{
    char path[512];
    wnw_reader *r;
    test_model_path(path, sizeof path, MODEL);
    assert_ok(wnw_open(&r, path));
    return r;
}

/* The answer, by the calls that the ring is made of; recipe NULL = everything stays. */
static void by_hand(struct heard *out, const char *recipe, double ratio, const char *text,
                    const char *question)
{
    wnw_model *m = test_model_open(MODEL);
    wnw_prompt_params layout = {WNW_INIT(wnw_prompt_params), .document = text, .question = question};
    wnw_prompt *prompt = NULL;
    wnw_policy *policy = NULL;
    wnw_session *s;
    wnw_sampler *sampler;
    wnw_generated said = wnw_generated_default();
    assert_ok(wnw_prompt_build(&prompt, m, &layout));
    assert_ok(wnw_session_new(&s, m, NULL));
    const int32_t first = text ? prompt->n_context : 0;
    if (recipe) {
        assert_ok(wnw_policy_parse(&policy, recipe, NULL));
        const wnw_run run = {
            WNW_INIT(wnw_run), .policy = policy, .size = {.kind = WNW_SIZE_RATIO, .ratio = ratio},
            .prompt = prompt,
            .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .question_later = true, .once = true}};
        assert_ok(wnw_session_begin(s, &run));
    }
    if (first > 0)
        assert_ok(wnw_session_read(s, prompt->tokens, first, NULL));
    assert_ok(wnw_session_read(s, prompt->tokens + first, prompt->n_tokens - first, NULL));
    assert_ok(wnw_sampler_new(&sampler, NULL));
    const wnw_generate_params how = {WNW_INIT(wnw_generate_params), .n_max = 512, .on_text = hear,
                                     .user = out};
    assert_ok(wnw_generate(&said, s, sampler, &how));
    wnw_generated_clear(&said);
    wnw_sampler_free(sampler);
    wnw_session_free(s);
    wnw_policy_free(policy);
    wnw_prompt_free(prompt);
    wnw_model_free(m);
}

#define assert_asked(r, policy, ratio, text, question, want)                          \
    do {                                                                              \
        struct heard said_ = {.most = (want)->most};                                  \
        assert_ok(wnw_ask((r), (policy), (ratio), (text), (question), hear, &said_)); \
        assert_string_equal(said_.s, (want)->s);                                      \
    } while (0)

static void answers(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *by_hand;
        double ratio;
    } rows[] = {{"keydiff", "keydiff", 0.5},
                {"full", NULL, 0},
                {NULL, NULL, 0},
                {"snapkv:window=8+adakv", "snapkv:window=8+adakv", 0.75}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_reader *r = open_reader();
        struct heard first = {.most = 24}, second = {.most = 24};
        by_hand(&first, rows[i].by_hand, rows[i].ratio, document, FIRST);
        by_hand(&second, rows[i].by_hand, rows[i].ratio, document, SECOND);
        assert_null(wnw_reader_session(r));
        assert_asked(r, rows[i].policy, rows[i].ratio, document, FIRST, &first);
        const wnw_session *s = wnw_reader_session(r);
        const int32_t n = wnw_session_n_past(s);
        assert_asked(r, NULL, 0, NULL, SECOND, &second);
        assert_asked(r, rows[i].policy, rows[i].ratio, document, FIRST,
                     &first); /* the same: not read again */
        assert_ptr_equal(wnw_reader_session(r), s);
        assert_int_equal(wnw_session_n_past(s), n); /* no question left a trace */
        wnw_close(r);
    }
}

/* Without a policy one is chosen, which removes what the ratio says. */
static void chosen(void **state)
{
    (void)state;
    wnw_reader *r = open_reader();
    struct heard said = {.most = 8};
    assert_ok(wnw_ask(r, NULL, 0.5, document, FIRST, hear, &said));
    const int32_t n = wnw_session_n_past(wnw_reader_session(r));
    wnw_cache_stats stats = wnw_cache_stats_default();
    assert_ok(wnw_cache_get_stats(wnw_reader_session(r), &stats));
    const int32_t kept = wnw_cache_n(wnw_reader_session(r), 0, 0);
    assert_cmp(kept, <, n);
    assert_ok(wnw_ask(r, "auto", 0.5, document, FIRST, NULL, NULL)); /* the same policy by its name */
    assert_int_equal(wnw_cache_n(wnw_reader_session(r), 0, 0), kept);
    wnw_close(r);
}

static void without_a_document(void **state)
{
    (void)state;
    wnw_reader *r = open_reader();
    struct heard want = {.most = 24};
    by_hand(&want, NULL, 0, NULL, FIRST);
    assert_asked(r, NULL, 0, NULL, FIRST, &want);
    assert_null(wnw_reader_session(r));
    wnw_close(r);
}

/* A file says which day its document was laid out for, so that it can be asked on another one. */
static void assert_dated(const char *path)
{
    wnw_prompt_params layout = wnw_prompt_default_params();
    wnw_stored *st;
    assert_ok(wnw_stored_open(&st, path));
    assert_true(wnw_stored_get_text(st, &layout));
    assert_int_not_equal(layout.now, 0);
    wnw_stored_free(st);
}

static void stored(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-reader-XXXXXX";
    struct heard first = {.most = 24}, second = {.most = 24};
    test_file_new(path);
    by_hand(&first, "keydiff", 0.5, document, FIRST);
    by_hand(&second, "keydiff", 0.5, document, SECOND);
    wnw_reader *r = open_reader();
    assert_error(wnw_reader_store(r, path), WNW_E_ARG); /* nothing was read */
    assert_asked(r, "keydiff", 0.5, document, FIRST, &first);
    assert_ok(wnw_reader_store(r, path));
    wnw_close(r);
    assert_dated(path);
    r = open_reader();
    assert_error(wnw_reader_load(r, "/nowhere.wkv"), WNW_E_IO);
    assert_null(wnw_reader_session(r));
    assert_ok(wnw_reader_load(r, path));
    assert_asked(r, NULL, 0, NULL, SECOND, &second);
    assert_asked(r, NULL, 0, NULL, FIRST, &first);
    assert_ok(wnw_reader_store(r, path));                     /* over the file that it reads from */
    assert_asked(r, "keydiff", 0.5, document, FIRST, &first); /* a text is read */
    /* A file that cannot be taken leaves what was read. */
    assert_error(wnw_reader_load(r, "/nowhere.wkv"), WNW_E_IO);
    assert_asked(r, NULL, 0, NULL, FIRST, &first);
    wnw_close(r);
    unlink(path);
}

static void refused(void **state)
{
    (void)state;
    wnw_reader *r = open_reader();
    struct heard want = {.most = 8};
    by_hand(&want, NULL, 0, document, FIRST);
    assert_asked(r, "full", 0, document, FIRST, &want);
    static const double ratios[] = {-0.1, 1, 2, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++)
        assert_error(wnw_ask(r, NULL, ratios[i], "a", FIRST, NULL, NULL), WNW_E_RANGE);
    assert_error(wnw_ask(r, "nonsense", 0.5, "another text", FIRST, NULL, NULL), WNW_E_ARG);
    assert_error(wnw_ask(r, NULL, 0, "a", NULL, NULL, NULL), WNW_E_ARG);
    char *endless = malloc(2000001);
    assert_non_null(endless);
    for (size_t i = 0; i < 2000000; i++)
        endless[i] = "abc d"[i % 5];
    endless[2000000] = '\0';
    assert_error(wnw_ask(r, NULL, 0, endless, FIRST, NULL, NULL), WNW_E_FULL);
    free(endless);
    assert_asked(r, NULL, 0, NULL, FIRST, &want); /* the document that was read is still there */
    wnw_close(r);
    assert_error(wnw_open(&r, "/nowhere.gguf"), WNW_E_IO);
    assert_null(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers), cmocka_unit_test(chosen),  cmocka_unit_test(without_a_document),
        cmocka_unit_test(stored),  cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("three calls", tests, NULL, NULL);
}
