/* SPDX-License-Identifier: MIT */
/*
 * A walk over the whole public header: every function with null pointers, with numbers at the ends of their
 * ranges, and in orders that make no sense. Null is E_ARG where something is needed, and an empty answer from
 * functions that have no status; everything else ends in a status, and the session is as sound as before.
 * Meant to be run under the sanitizers, too.
 */
#include "files.h"
#include "helpers.h"
#include "peek_prompt.h"
#include "winnow_method.h"
#include "winnow_store.h"
#include "winnow_study.h"

#include "peek_session.h"
#include "winnow_calibrate.h"
#include "winnow_chat.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TOKENS = 48, N_CTX = 96, N_WALKS = 60, N_STEPS = 40 };

struct fixture {
    wnw_model *model;
    wnw_model_info info;
    int32_t *tokens; /* [N_TOKENS] */
    int n_ok, n_refused;
};

static wnw_session *session_of(const struct fixture *fx)
{
    return test_session_new(fx->model, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
}

/* ---- Is the header walked over completely? ---- */

/* Whether the text contains `name` as a whole word, followed by "(". */
static bool is_called(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if (at[n] == '(' && (at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')))
            return true;
    return false;
}

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    const size_t n = fread(text, 1, (1 << 20) - 1, f);
    assert_cmp(n, >, 1000);
    assert_cmp(n, <, (1 << 20) - 1);
    fclose(f);
    return text;
}

/* How many functions a public header declares; all of them are called here. Declarations end in ");" and have
 * the function's name before the first parenthesis; comments are cut out. */
static int functions_of(const char *path)
{
    char *header = read_text(path);
    char *here = read_text(WNW_TEST_SOURCE_DIR "/tests/model/api.c");
    for (char *c = strstr(header, "/*"); c; c = strstr(c, "/*"))
        for (char *end = strstr(c, "*/") + 2; c < end; c++)
            *c = ' ';
    int n = 0;
    for (char *line = strtok(header, "\n"); line; line = strtok(NULL, "\n")) {
        const char *paren = strchr(line, '(');
        if (!paren || line[0] == ' ' || line[0] == '#' || strncmp(line, "typedef", 7) == 0)
            continue;
        const char *from = paren;
        while (from > line && (isalnum((unsigned char)from[-1]) || from[-1] == '_'))
            from--;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(paren - from), from);
        if (strncmp(name, "wnw_", 4) != 0)
            continue;
        n++;
        if (strncmp(line, "WNW_API ", 8) != 0 && strncmp(line, "static inline ", 14) != 0)
            fail_msg("%s is declared in %s without WNW_API", name, path);
        if (!is_called(here, name))
            fail_msg("%s is declared in %s and not called here", name, path);
    }
    free(header);
    free(here);
    return n;
}

static void every_function_is_here(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int least;
    } headers[] = {{"winnow.h", 40},       {"winnow_method.h", 20}, {"winnow_store.h", 10},
                   {"winnow_tools.h", 20}, {"winnow_chat.h", 6},    {"winnow_batch.h", 4},
                   {"winnow_study.h", 6}};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/include/%s", WNW_TEST_SOURCE_DIR, headers[i].name);
        const int n = functions_of(path);
        print_message("%s: %d functions\n", headers[i].name, n);
        assert_in_range(n, headers[i].least, 60);
    }
}

/* ---- Null ---- */

#define assert_null_refused(expr) assert_error((expr), WNW_E_ARG)

static bool stop_at_once(int32_t done, int32_t total, void *user)
{
    (void)done;
    (void)total;
    (void)user;
    return false;
}

static void stored_sessions(void **state)
{
    const struct fixture *fx = *state;
    char path[] = "/tmp/wnw-api-XXXXXX";
    wnw_session *s = session_of(fx), *of_file = s;
    wnw_stored *st = (wnw_stored *)&path;
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    wnw_engine *e;
    const int32_t *pos;
    int32_t n = 7;
    test_file_new(path);
    assert_null_refused(wnw_session_store(NULL, path, NULL));
    assert_null_refused(wnw_session_store(s, NULL, NULL));
    assert_error(wnw_session_store(s, path, NULL), WNW_E_ARG);
    assert_null_refused(wnw_stored_open(NULL, path));
    assert_null_refused(wnw_stored_open(&st, NULL));
    assert_null(st);
    wnw_stored_free(NULL);
    assert_null_refused(wnw_stored_get_info(NULL, &info));
    assert_string_equal(info.model, "");
    assert_null(wnw_stored_tokens(NULL, &n));
    assert_int_equal(n, 0);
    assert_int_equal(wnw_stored_head(NULL, 0, 0, &pos), 0);
    assert_null(pos);
    assert_false(wnw_stored_get_text(NULL, &text));
    assert_null(wnw_stored_note(NULL));
    assert_false(wnw_stored_is(NULL));
    assert_false(wnw_stored_is("/nowhere/x.wkv"));
    assert_null_refused(wnw_stored_check_model(NULL, fx->model));
    test_prefill(s, fx->tokens, N_TOKENS);
    assert_ok(wnw_session_store(s, path, NULL));
    assert_true(wnw_stored_is(path));
    assert_ok(wnw_stored_open(&st, path));
    assert_null_refused(wnw_stored_get_info(st, NULL));
    info.struct_size = 0;
    assert_error(wnw_stored_get_info(st, &info), WNW_E_ARG);
    assert_non_null(wnw_stored_tokens(st, NULL));
    assert_int_equal(wnw_stored_head(st, 0, 0, NULL), 0);
    assert_int_equal(wnw_stored_head(st, -1, 0, &pos), 0);
    assert_int_equal(wnw_stored_head(st, 0, INT32_MAX, &pos), 0);
    assert_int_equal(wnw_stored_head(st, 0, 0, &pos), N_TOKENS);
    assert_false(wnw_stored_get_text(st, NULL));
    assert_null_refused(wnw_stored_check_model(st, NULL));
    assert_ok(wnw_stored_check_model(st, fx->model));
    uint8_t *sequence = (uint8_t *)&path;
    size_t n_sequence = 7;
    assert_null_refused(wnw_stored_sequence(NULL, &sequence, &n_sequence));
    assert_null(sequence);
    assert_int_equal(n_sequence, 0);
    assert_null_refused(wnw_stored_sequence(st, &sequence, NULL));
    assert_ok(wnw_stored_sequence(st, &sequence, &n_sequence));
    wnw_session *empty = session_of(fx);
    assert_null_refused(wnw_session_take_sequence(NULL, sequence, n_sequence, fx->tokens, N_TOKENS, 0));
    assert_null_refused(wnw_session_take_sequence(empty, NULL, n_sequence, fx->tokens, N_TOKENS, 0));
    assert_null_refused(wnw_session_take_sequence(empty, sequence, n_sequence, NULL, N_TOKENS, 0));
    assert_error(wnw_session_take_sequence(s, sequence, n_sequence, fx->tokens, N_TOKENS, 0), WNW_E_ARG);
    assert_error(wnw_session_take_sequence(empty, sequence, n_sequence, fx->tokens, N_TOKENS, -1), WNW_E_ARG);
    assert_error(wnw_session_take_sequence(empty, sequence, n_sequence / 2, fx->tokens, N_TOKENS, 0),
                 WNW_E_FORMAT);
    assert_null_refused(wnw_session_append(NULL, st, 0, 1));
    assert_null_refused(wnw_session_append(empty, NULL, 0, 1));
    assert_error(wnw_session_append(empty, st, -1, 1), WNW_E_RANGE);
    assert_error(wnw_session_append(empty, st, 0, 0), WNW_E_RANGE);
    assert_error(wnw_session_append(empty, st, 1, INT32_MAX), WNW_E_RANGE);
    assert_error(wnw_session_append(empty, st, N_TOKENS, 1), WNW_E_RANGE);
    wnw_session_free(empty);
    wnw_free(sequence);
    assert_ok(wnw_engine_new(&e, fx->model, NULL));
    assert_null_refused(wnw_stored_session(NULL, st, e, NULL));
    assert_null_refused(wnw_stored_session(&of_file, NULL, e, NULL));
    assert_null(of_file);
    assert_null_refused(wnw_stored_session(&of_file, st, NULL, NULL));
    wnw_stored_session_params params = wnw_stored_session_default_params();
    params.room = -1;
    assert_error(wnw_stored_session(&of_file, st, e, &params), WNW_E_RANGE);
    params = (wnw_stored_session_params){WNW_INIT(wnw_stored_session_params), .n_ctx = INT32_MAX};
    assert_error(wnw_stored_session(&of_file, st, e, &params), WNW_E_RANGE);
    params =
        (wnw_stored_session_params){WNW_INIT(wnw_stored_session_params), .room = INT32_MAX, .n_ctx = N_CTX};
    assert_ok(wnw_stored_session(&of_file, st, e, &params));
    wnw_session *copied;
    params.copied = true;
    assert_ok(wnw_stored_session(&copied, st, e, &params));
    assert_same_cache(copied, of_file);
    wnw_session_free(copied);
    params.progress = stop_at_once;
    assert_ok(wnw_stored_session(&copied, st, e, &params));
    assert_error(wnw_session_read(copied, fx->tokens, 2, NULL), WNW_E_CANCELLED);
    wnw_session_free(copied);
    const wnw_run run = wnw_run_default();
    assert_null_refused(wnw_stored_resume(NULL, st, &run));
    assert_null_refused(wnw_stored_resume(of_file, NULL, &run));
    assert_null_refused(wnw_stored_resume(of_file, st, NULL));
    assert_ok(wnw_stored_resume(of_file, st, &run));
    wnw_session_free(of_file);
    wnw_engine_free(e);
    wnw_stored_free(st);
    wnw_session_free(s);
    unlink(path);
}

static void attention_of_tokens(void **state)
{
    const struct fixture *fx = *state;
    wnw_session *s = session_of(fx);
    int32_t n = 7;
    assert_null_refused(wnw_session_watch(NULL, true));
    assert_null(wnw_session_attention(NULL, 0, &n));
    assert_int_equal(n, 0);
    test_prefill(s, fx->tokens, N_TOKENS);
    assert_null(wnw_session_attention(s, 0, &n)); /* nobody watches */
    assert_ok(wnw_session_watch(s, true));
    assert_ok(wnw_session_watch(s, true));
    assert_null(wnw_session_attention(s, 0, &n)); /* nothing was decoded */
    assert_ok(wnw_session_decode(s, fx->tokens[0]));
    assert_null(wnw_session_attention(s, 0, NULL));
    assert_null(wnw_session_attention(s, -1, &n));
    assert_null(wnw_session_attention(s, INT32_MAX, &n));
    const float *row = wnw_session_attention(s, 0, &n);
    assert_non_null(row);
    assert_int_equal(n, N_TOKENS + 1);
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)row[i];
    assert_near(sum, 1, 1e-5);
    assert_ok(wnw_session_watch(s, false));
    assert_ok(wnw_session_decode(s, fx->tokens[1]));
    assert_null(wnw_session_attention(s, 0, &n));
    wnw_session_free(s);
}

static bool count_entry(const wnw_store_entry *e, void *user)
{
    assert_cmp(e->bytes, >, 4096);
    ++*(int *)user;
    return true;
}

static void kept_documents(void **state)
{
    const struct fixture *fx = *state;
    char folder[] = "/tmp/wnw-api-XXXXXX", path[128];
    wnw_session *s = session_of(fx);
    wnw_store *store = (wnw_store *)&path;
    wnw_stored *st = (wnw_stored *)&path;
    wnw_policy *policy = test_policy("full");
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .once = true}};
    wnw_store_key key = wnw_store_key_default();
    int n_entry = 0;
    assert_non_null(mkdtemp(folder));
    assert_null_refused(wnw_store_open(NULL, folder, 0));
    assert_null_refused(wnw_store_open(&store, NULL, 0));
    assert_null(store);
    assert_error(wnw_store_open(&store, "/proc/none/at/all", 0), WNW_E_IO);
    wnw_store_close(NULL);
    assert_ok(wnw_store_open(&store, folder, 0));
    assert_null_refused(wnw_store_find(NULL, store, &key, true));
    assert_null_refused(wnw_store_find(&st, NULL, &key, true));
    assert_null(st);
    assert_null_refused(wnw_store_find(&st, store, NULL, true));
    assert_error(wnw_store_find(&st, store, &key, true), WNW_E_ARG);
    key = (wnw_store_key){WNW_INIT(wnw_store_key), .model = fx->model, .run = &run, .tokens = fx->tokens,
                          .n_tokens = N_TOKENS};
    assert_ok(wnw_store_find(&st, store, &key, true));
    assert_null(st);
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, fx->tokens, N_TOKENS, NULL));
    assert_null_refused(wnw_store_add(NULL, &key, s, NULL));
    assert_null_refused(wnw_store_add(store, NULL, s, NULL));
    assert_null_refused(wnw_store_add(store, &key, NULL, NULL));
    key.n_tokens = N_TOKENS - 1;
    assert_error(wnw_store_add(store, &key, s, NULL), WNW_E_ARG);
    key.n_tokens = N_TOKENS;
    assert_ok(wnw_store_add(store, &key, s, NULL));
    assert_ok(wnw_store_add(store, &key, s, NULL));
    assert_ok(wnw_store_find(&st, store, &key, false));
    assert_non_null(st);
    wnw_stored_free(st);
    key.n_tokens = N_TOKENS - 1;
    assert_ok(wnw_store_find(&st, store, &key, false));
    assert_null(st); /* the stored one is longer */
    wnw_run other = run;
    other.every = 4;
    key.run = &other;
    assert_error(wnw_store_find(&st, store, &key, false), WNW_E_UNSUPPORTED);
    other = wnw_run_default();
    assert_error(wnw_store_find(&st, store, &key, false), WNW_E_ARG);
    assert_null_refused(wnw_store_list(NULL, count_entry, &n_entry));
    assert_null_refused(wnw_store_list(store, NULL, NULL));
    assert_ok(wnw_store_list(store, count_entry, &n_entry));
    assert_int_equal(n_entry, 1);
    wnw_store_report report = wnw_store_report_default();
    assert_null_refused(wnw_store_check(NULL, &report, NULL, NULL));
    assert_int_equal(report.n_whole, 0);
    assert_ok(wnw_store_check(store, &report, NULL, NULL));
    assert_int_equal(report.n_whole, 1);
    report.struct_size = 0;
    assert_error(wnw_store_check(store, &report, NULL, NULL), WNW_E_ARG);
    assert_null_refused(wnw_store_repair(NULL));
    assert_false(wnw_store_is(NULL));
    assert_false(wnw_store_continues(NULL));
    assert_ok(wnw_store_check(store, NULL, NULL, NULL));
    assert_null_refused(wnw_store_remove(NULL, "x"));
    assert_null_refused(wnw_store_remove(store, NULL));
    assert_error(wnw_store_remove(store, "../x"), WNW_E_ARG);
    wnw_store_close(store);
    wnw_session_free(s);
    wnw_policy_free(policy);
    snprintf(path, sizeof path, "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

static int end_at_once(const char *recipe, const wnw_policy_choice *row, void *user)
{
    (void)user;
    assert_string_equal(recipe, row->recipe);
    return WNW_E_FULL;
}

static void null_models(void **state)
{
    const struct fixture *fx = *state;
    wnw_model *m = fx->model;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    char print[WNW_FINGERPRINT_SIZE] = "x", *text;
    int32_t *tokens = (int32_t *)&info, n = 7;
    wnw_prompt *prompt = NULL;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = "a"};
    assert_null_refused(wnw_model_open(NULL, "x", NULL));
    assert_null_refused(wnw_model_open(&m, NULL, NULL));
    assert_null(m);
    wnw_model_free(NULL);
    assert_null_refused(wnw_model_get_info(NULL, NULL));
    assert_null_refused(wnw_model_get_info(fx->model, NULL));
    assert_null_refused(wnw_model_get_info(NULL, &info));
    assert_cmp(info.n_layer, ==, 0);
    assert_string_equal(info.arch, "");
    assert_string_equal(info.name, "");
    assert_false(wnw_model_layer_is_swa(NULL, 0));
    wnw_policy_facts facts = {WNW_INIT(wnw_policy_facts), .n_tokens = 7};
    const wnw_run run = {WNW_INIT(wnw_run)};
    assert_null_refused(wnw_policy_facts_of(NULL, fx->model, &run));
    assert_null_refused(wnw_policy_facts_of(&facts, NULL, &run));
    assert_int_equal(facts.n_tokens, 0);
    assert_null_refused(wnw_policy_facts_of(&facts, fx->model, NULL));
    assert_ok(wnw_policy_facts_of(&facts, fx->model, &run));
    assert_int_equal(facts.n_ctx_train, fx->info.n_ctx_train);
    wnw_policy_choice choice = wnw_policy_choice_default();
    assert_null_refused(wnw_policy_choose(NULL, &facts));
    assert_null_refused(wnw_policy_choose(&choice, NULL));
    assert_ok(wnw_policy_choose(&choice, &facts));
    assert_null_refused(wnw_policy_choose_quality(NULL, &facts, NULL, 0.9));
    assert_null_refused(wnw_policy_choose_quality(&choice, NULL, NULL, 0.9));
    assert_ok(wnw_policy_choose_quality(&choice, &facts, NULL, 0.9));
    double q = 1;
    char *recipe;
    const wnw_automatic none = {WNW_INIT(wnw_automatic)}, of = {WNW_INIT(wnw_automatic), .recipe = "auto"},
                        unsized = {.recipe = "auto"};
    assert_false(wnw_automatic_is(NULL, &q));
    assert_near(q, 0, 0.0);
    assert_true(wnw_automatic_is("auto", NULL));
    assert_null_refused(wnw_automatic_choose(NULL, &of, 1, false));
    assert_null_refused(wnw_automatic_choose(&recipe, NULL, 1, false));
    assert_null(recipe);
    assert_error(wnw_automatic_choose(&recipe, &none, 1, false), WNW_E_ARG);
    assert_error(wnw_automatic_choose(&recipe, &unsized, 1, false), WNW_E_ARG);
    assert_null_refused(wnw_automatic_each(NULL, end_at_once, NULL));
    assert_null_refused(wnw_automatic_each(&of, NULL, NULL));
    assert_error(wnw_automatic_each(&none, end_at_once, NULL), WNW_E_ARG);
    assert_error(wnw_automatic_each(&of, end_at_once, NULL), WNW_E_FULL);
    assert_ok(wnw_automatic_choose(&recipe, &of, 1, false));
    assert_string_equal(recipe, "replay");
    wnw_free(recipe);
    assert_int_equal(wnw_policy_chunk(NULL), 0);
    assert_int_equal(wnw_automatic_chunk(NULL, 9000), 0);
    assert_int_equal(wnw_automatic_chunk(&none, 9000), 0);
    wnw_policy_facts_add(NULL, NULL);
    wnw_policy_facts_add(&facts, NULL);
    assert_int_equal(facts.profiles, 0);
    assert_false(wnw_policy_rule(0, NULL));
    assert_false(wnw_policy_rule(INT32_MAX, &choice));
    assert_true(wnw_policy_rule(0, &choice));
    wnw_model_fingerprint(fx->model, NULL);
    assert_null_refused(wnw_file_fingerprint("x", NULL, NULL));
    assert_null_refused(wnw_file_fingerprint(NULL, NULL, print));
    assert_null_refused(wnw_model_check_files(NULL));
    assert_ok(wnw_model_check_files(fx->model));
    assert_string_equal(print, "");
    assert_string_equal(wnw_profile_fingerprint(NULL), "");
    strcpy(print, "x");
    wnw_model_fingerprint(NULL, print);
    assert_string_equal(print, "");
    assert_null_refused(wnw_tokenize(NULL, "a", 1, false, false, &tokens, &n));
    assert_null(tokens);
    assert_cmp(n, ==, 0);
    assert_null_refused(wnw_tokenize(fx->model, NULL, 1, false, false, &tokens, &n));
    assert_null_refused(wnw_tokenize(fx->model, "a", 1, false, false, NULL, &n));
    assert_null_refused(wnw_tokenize(fx->model, "a", 1, false, false, &tokens, NULL));
    assert_ok(wnw_tokenize(fx->model, NULL, 0, false, false, &tokens, &n));
    assert_int_equal(n, 0);
    wnw_free(tokens);
    wnw_free(NULL);
    size_t n_bytes = 7;
    assert_false(wnw_text_exceeds(NULL, "a", 1, 0, &n_bytes));
    assert_int_equal(n_bytes, 1);
    n_bytes = 7;
    assert_false(wnw_text_exceeds(fx->model, NULL, 1, 0, &n_bytes));
    assert_int_equal(n_bytes, 1);
    assert_false(wnw_text_exceeds(fx->model, "", 0, 0, NULL));
    assert_null_refused(wnw_detokenize(NULL, fx->tokens, 1, &text));
    assert_null_refused(wnw_detokenize(fx->model, NULL, 1, &text));
    assert_null(text);
    assert_null_refused(wnw_detokenize(fx->model, fx->tokens, 1, NULL));
    assert_null_refused(wnw_token_piece(NULL, 0, &text));
    assert_null(text);
    assert_null_refused(wnw_token_piece(fx->model, 0, NULL));
    assert_ok(wnw_token_piece(fx->model, INT32_MAX, &text));
    assert_string_equal(text, "");
    wnw_free(text);
    assert_ok(wnw_token_piece(fx->model, -1, &text));
    wnw_free(text);
    assert_null_refused(wnw_text_of(NULL, fx->tokens, 1, NULL, &text));
    assert_null_refused(wnw_text_of(fx->model, NULL, 1, NULL, &text));
    assert_null(text);
    assert_null_refused(wnw_text_of(fx->model, fx->tokens, 1, NULL, NULL));
    assert_ok(wnw_text_of(fx->model, NULL, 0, &n_bytes, &text));
    assert_string_equal(text, "");
    assert_int_equal(n_bytes, 0);
    wnw_free(text);
    assert_false(wnw_token_is_eog(NULL, 2));
    assert_null_refused(wnw_prompt_build(NULL, fx->model, &params));
    assert_null_refused(wnw_prompt_build(&prompt, NULL, &params));
    assert_null_refused(wnw_prompt_build(&prompt, fx->model, NULL));
    assert_null(prompt);
    wnw_prompt_free(NULL);
    int32_t n_tokens = 1;
    wnw_prompt_parts parts = wnw_prompt_parts_default();
    assert_null(wnw_prompt_tokens(NULL, &n_tokens));
    assert_int_equal(n_tokens, 0);
    assert_null(wnw_prompt_tokens(NULL, NULL));
    assert_int_equal(wnw_prompt_n_context(NULL), 0);
    assert_int_equal(wnw_prompt_n_past(NULL), 0);
    assert_null_refused(wnw_prompt_get_parts(NULL, &parts));
    assert_int_equal(wnw_prompt_parts_of(NULL).n_tokens, 0);
    assert_null_refused(wnw_prompt_new(NULL, &parts));
    assert_null_refused(wnw_prompt_new(&prompt, NULL));
    assert_null(prompt);
    assert_ok(wnw_prompt_new(&prompt, &parts));
    assert_null_refused(wnw_prompt_get_parts(prompt, NULL));
    wnw_prompt_free(prompt);
    prompt = NULL;
    wnw_chat *chat = (wnw_chat *)(void *)&chat;
    assert_null_refused(wnw_chat_open(NULL, fx->model, &params));
    assert_null_refused(wnw_chat_open(&chat, NULL, &params));
    assert_null(chat);
    assert_ok(wnw_chat_open(&chat, fx->model, NULL));
    assert_null_refused(wnw_chat_user(NULL, chat, NULL, "a", NULL));
    assert_null_refused(wnw_chat_user(&prompt, NULL, NULL, "a", NULL));
    assert_null_refused(wnw_chat_answer(NULL, NULL, 0));
    assert_null_refused(wnw_chat_answer(chat, NULL, 1));
    assert_null_refused(wnw_chat_answer_text(NULL, "a"));
    assert_null_refused(wnw_chat_answer_text(chat, NULL));
    assert_null(wnw_chat_tokens(NULL, NULL));
    assert_null(wnw_chat_tokens(chat, &n));
    assert_int_equal(n, 0);
    wnw_chat_free(chat);
    wnw_chat_free(NULL);
}

static void null_tables(const wnw_profile *empty)
{
    wnw_profile_table table = wnw_profile_table_default();
    wnw_profile *p = (wnw_profile *)&table;
    double value = 7;
    assert_null_refused(wnw_profile_open(NULL, "x"));
    assert_null_refused(wnw_profile_open(&p, NULL));
    assert_null(p);
    char *path = (char *)&table;
    const char *list = NULL;
    assert_null_refused(wnw_profile_next(NULL, &list));
    assert_null_refused(wnw_profile_next(&path, NULL));
    assert_null(path);
    assert_null_refused(wnw_profile_next(&path, &list));
    assert_false(wnw_profile_get_table(NULL, 0, &table));
    assert_false(wnw_profile_get_table(empty, 0, NULL));
    assert_false(wnw_profile_get_table(empty, 0, &table));
    assert_false(wnw_profile_get_table(empty, -1, &table));
    assert_null_refused(wnw_profile_get_values(&value, 1, NULL, "srh"));
    assert_null_refused(wnw_profile_get_values(NULL, 1, empty, "srh"));
    assert_null_refused(wnw_profile_get_values(&value, 1, empty, NULL));
    assert_null_refused(wnw_profile_get_values(&value, 1, empty, "srh"));
    assert_true(value == 7);
}

static void null_lists_of_heads(const wnw_model *m)
{
    wnw_head *heads = (wnw_head *)&heads;
    int32_t n = 7;
    assert_null_refused(wnw_heads_parse(NULL, &n, "0-0", m, NULL));
    assert_null_refused(wnw_heads_parse(&heads, NULL, "0-0", m, NULL));
    assert_null_refused(wnw_heads_parse(&heads, &n, NULL, m, NULL));
    assert_null_refused(wnw_heads_parse(&heads, &n, "0-0", NULL, NULL));
    assert_null(heads);
    assert_int_equal(wnw_heads_profiles(NULL), 0);
    assert_int_equal(wnw_heads_profiles("0-0"), 0);
    assert_int_equal(wnw_heads_profiles("srh:top3"), 1u << WNW_PROFILE_SRH);
}

static void null_policies(void **state)
{
    const struct fixture *fx = *state;
    const wnw_scorer nameless = {.part = {WNW_SCORER_INIT, .name = NULL}};
    wnw_policy *p = (wnw_policy *)&nameless;
    wnw_registry *r;
    wnw_profile *profile = (wnw_profile *)&nameless;
    const char *reason = NULL;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    assert_null_refused(wnw_policy_parse(NULL, "snapkv", NULL));
    assert_null_refused(wnw_policy_parse(&p, NULL, NULL));
    assert_null(p);
    wnw_policy_free(NULL);
    assert_string_equal(wnw_policy_string(NULL), "");
    char *text = (char *)(void *)&text;
    assert_null_refused(wnw_policy_short(NULL, &text));
    assert_null(text);
    wnw_needs needs = {WNW_INIT(wnw_needs), .flags = 7};
    assert_null_refused(wnw_policy_get_needs(NULL, &needs));
    assert_null_refused(wnw_policy_get_needs(NULL, NULL));
    assert_int_equal(needs.flags, 0);
    assert_int_equal(wnw_policy_needs(NULL).flags, 0);
    assert_false(wnw_policy_is_full(NULL));
    assert_false(wnw_policy_rerotates(NULL));
    assert_false(wnw_policy_has_own_size(NULL));
    assert_false(wnw_policy_has_own_times(NULL));
    assert_false(wnw_second_passes_agree(NULL, NULL));
    assert_int_equal(wnw_sample_places(NULL, 0, 100, NULL), 0);
    assert_int_equal(wnw_sample_fed(NULL, 100), 0);
    wnw_turns_part parts[2];
    const wnw_turns turns = {WNW_INIT(wnw_turns), .n = 100}, unsized = {.n = 100};
    assert_int_equal(wnw_turns_parts(NULL, &turns), 0);
    assert_int_equal(wnw_turns_parts(parts, NULL), 0);
    assert_int_equal(wnw_turns_parts(parts, &unsized), 0);
    assert_int_equal(wnw_turns_parts(parts, &turns), 1);
    assert_int_equal(wnw_turns_first_new(NULL), 0);
    assert_int_equal(wnw_turns_first_new(&unsized), 0);
    assert_false(wnw_turns_is_due(0, 0, false));
    assert_false(wnw_policy_allows(NULL, WNW_PHASE_END, &reason));
    assert_non_null(reason);
    assert_false(wnw_policy_allows(NULL, WNW_PHASE_END, NULL));
    assert_false(wnw_policy_rewrites(NULL));
    assert_null_refused(wnw_registry_new(NULL));
    wnw_registry_free(NULL);
    assert_ok(wnw_registry_new(&r));
    assert_null_refused(wnw_registry_add(NULL, &nameless.part));
    assert_null_refused(wnw_registry_load(NULL, "x"));
    assert_null_refused(wnw_registry_add(r, NULL));
    assert_null_refused(wnw_registry_add(r, &nameless.part));
    wnw_registry_free(r);
    char warning[256] = "";
    wnw_part_warn(NULL, "unheard");
    wnw_part_warn(warning, NULL);
    assert_string_equal(warning, "");
    wnw_part_warn(warning, "a sentence");
    assert_string_equal(warning, "a sentence");
    assert_false(wnw_method_get(0, NULL));
    assert_true(wnw_method_get(0, &info));
    assert_null_refused(wnw_profile_new(NULL, fx->model));
    assert_null_refused(wnw_profile_new(&profile, NULL));
    assert_null(profile);
    assert_null_refused(wnw_profile_add_file(NULL, "x"));
    assert_ok(wnw_profile_new(&profile, fx->model));
    assert_null_refused(wnw_profile_add_file(profile, NULL));
    wnw_profile_set_found(NULL, 1);
    assert_int_equal(wnw_profile_kinds(NULL), 0);
    null_tables(profile);
    null_lists_of_heads(fx->model);
    wnw_profile_free(profile);
    wnw_profile_free(NULL);
}

/* A head of two entries in rows of three, with keys whose norms are whole numbers. */
static const float *two_keys(const wnw_observation *obs, int32_t ih)
{
    static const float keys[] = {3, 4, 0, -2, 7, 7};
    (void)obs;
    (void)ih;
    return keys;
}

static void observations_become_numbers(void **state)
{
    (void)state;
    static const int32_t n_entry[] = {2};
    static const float attn[] = {1, 0, 9, 0.5f, 0.5f, 9, 0, 1, 9, 0.25f, 0.75f, 9};
    wnw_observation obs = {.n_head = 2, .n_head_kv = 1, .n_embd_head = 2, .n = 3, .n_entry = n_entry};
    float out[6] = {8, 8, 8, 8, 8, 8};
    assert_null_refused(wnw_observation_window_mean(NULL, out));
    assert_null_refused(wnw_observation_window_mean(&obs, NULL));
    assert_null_refused(wnw_observation_key_norms(NULL, out));
    assert_null_refused(wnw_observation_key_norms(&obs, NULL));
    assert_error(wnw_observation_window_mean(&obs, out), WNW_E_ARG);
    assert_error(wnw_observation_key_norms(&obs, out), WNW_E_ARG);
    obs.window_attn = attn;
    obs.n_window = 2;
    obs.keys = two_keys;
    assert_ok(wnw_observation_window_mean(&obs, out));
    static const float means[] = {0.75f, 0.25f, 0, 0.125f, 0.875f, 0};
    for (size_t i = 0; i < 6; i++)
        assert_true(out[i] == means[i]);
    assert_ok(wnw_observation_key_norms(&obs, out));
    static const float norms[] = {5, 2, 0};
    for (size_t i = 0; i < 3; i++)
        assert_true(out[i] == norms[i]);
}

static void null_plans_and_numbers(void **state)
{
    (void)state;
    static const int32_t n[] = {1};
    static const int32_t *const none[] = {NULL};
    static const float attn[] = {1};
    static const bool kept[] = {true};
    const int32_t *positions = n;
    wnw_plan *plan = (wnw_plan *)&positions;
    struct wnw__perturbation bounds;
    wnw_sampler *sp;
    wnw_kv_type type;
    double l1;
    assert_null_refused(wnw_plan_new(NULL, 1, 1, 1, n, none));
    assert_null_refused(wnw_plan_new(&plan, 1, 1, 1, NULL, none));
    assert_null_refused(wnw_plan_new(&plan, 1, 1, 1, n, NULL));
    assert_null_refused(wnw_plan_new(&plan, 1, 1, 1, n, none));
    assert_null(plan);
    wnw_plan_free(NULL);
    assert_int_equal(wnw_plan_n_layer(NULL) + wnw_plan_n_head_kv(NULL) + wnw_plan_n_tokens(NULL), 0);
    assert_int_equal(wnw_plan_head(NULL, 0, 0, &positions), 0);
    assert_null(positions);
    assert_int_equal(wnw_plan_head(NULL, 0, 0, NULL), 0);
    assert_int_equal(wnw_plan_merges(NULL, 0, 0, NULL), 0);
    assert_int_equal(wnw_plan_channels(NULL, 0, 0, NULL, NULL), 0);
    assert_int_equal(wnw_plan_fitted(NULL, 0, 0).n, 0);
    assert_null(wnw_plan_fitted(NULL, 0, 0).bias);
    assert_null_refused(wnw__perturb_bounds(NULL, attn, attn, kept, NULL, 1));
    assert_null_refused(wnw__perturb_bounds(&bounds, NULL, attn, kept, NULL, 1));
    assert_null_refused(wnw__perturb_bounds(&bounds, attn, NULL, kept, NULL, 1));
    assert_null_refused(wnw__perturb_bounds(&bounds, attn, attn, NULL, NULL, 1));
    assert_null_refused(wnw__perturb_output(&l1, NULL, NULL, attn, kept, 1, 1));
    assert_null_refused(wnw__perturb_output(&l1, NULL, attn, NULL, kept, 1, 1));
    assert_null_refused(wnw__perturb_output(&l1, NULL, attn, attn, NULL, 1, 1));
    assert_ok(wnw__perturb_output(NULL, NULL, attn, attn, kept, 1, 1));
    assert_cmp(wnw__topk_sum(NULL, 1, 1), ==, 0);
    struct wnw__perturb_token *probe;
    struct wnw__perturb_bound tight;
    assert_null_refused(wnw__perturb_token_new(NULL, NULL, 0));
    assert_null_refused(wnw__perturb_token_new(&probe, NULL, 0));
    assert_null(probe);
    assert_null_refused(wnw__perturb_token_change(NULL, NULL, &l1, NULL, NULL));
    assert_null_refused(wnw__perturb_token_drift(NULL, NULL, &l1));
    assert_null_refused(wnw__perturb_token_bounds(NULL, 2, &tight));
    wnw__perturb_token_free(NULL);
    assert_null_refused(wnw_sampler_new(NULL, NULL));
    assert_ok(wnw_sampler_new(&sp, NULL));
    assert_int_equal(wnw_sampler_pick(NULL, attn, 1), -1);
    assert_int_equal(wnw_sampler_pick(sp, NULL, 1), -1);
    wnw_sampler_free(sp);
    wnw_sampler_free(NULL);
    wnw_reader *reader = (wnw_reader *)(void *)&reader;
    assert_null_refused(wnw_open(NULL, "x"));
    assert_null_refused(wnw_open(&reader, NULL));
    assert_null(reader);
    assert_null_refused(wnw_ask(NULL, NULL, 0, NULL, "q", NULL, NULL));
    assert_null(wnw_reader_session(NULL));
    assert_null_refused(wnw_reader_store(NULL, "x"));
    assert_null_refused(wnw_reader_load(NULL, "x"));
    wnw_close(NULL);
    assert_null_refused(wnw_kv_type_parse(NULL, "f16"));
    assert_null_refused(wnw_kv_type_parse(&type, NULL));
}

static void null_engines(void **state)
{
    const struct fixture *fx = *state;
    const wnw_engine_params params = wnw_engine_default_params();
    wnw_engine *e = (wnw_engine *)fx->tokens;
    wnw_session *s = (wnw_session *)fx->tokens, *none = NULL;
    const int32_t token = 1;
    assert_null_refused(wnw_engine_new(NULL, fx->model, &params));
    assert_null_refused(wnw_engine_new(&e, NULL, &params));
    assert_null(e);
    assert_error(wnw_engine_new(&e, fx->model, &(wnw_engine_params){.n_threads = 1}),
                 WNW_E_ARG); /* no size */
    assert_ok(wnw_engine_new(&e, fx->model, &params));
    assert_null_refused(wnw_session_new_on(NULL, e, NULL));
    assert_null_refused(wnw_session_new_on(&s, NULL, NULL));
    assert_null(s);
    assert_null_refused(wnw_decode_batch(NULL, &none, &token, 1));
    assert_null_refused(wnw_decode_batch(e, NULL, &token, 1));
    assert_null_refused(wnw_decode_batch(e, &none, NULL, 1));
    assert_null_refused(wnw_decode_batch(e, &none, &token, 1));
    assert_null_refused(wnw_engine_measure(NULL, true));
    wnw_engine_times times = {WNW_INIT(wnw_engine_times), .n_pass = 3};
    assert_null_refused(wnw_engine_get_times(e, NULL));
    assert_null_refused(wnw_engine_get_times(NULL, &times));
    assert_int_equal(times.n_pass, 0);
    assert_error(wnw_engine_get_times(e, &(wnw_engine_times){0}), WNW_E_ARG); /* no size */
    wnw_engine_free(e);
    wnw_engine_free(NULL);
}

static void null_sessions(void **state)
{
    const struct fixture *fx = *state;
    wnw_session *s = (wnw_session *)fx->tokens, *good = session_of(fx);
    wnw_policy *p = test_policy("knorm");
    const wnw_policy *const hole[] = {p, NULL};
    const int32_t *const tasks[] = {NULL};
    const int32_t one[] = {1};
    wnw_plan *plan = (wnw_plan *)fx->tokens;
    wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
    assert_null_refused(wnw_session_new(NULL, fx->model, NULL));
    assert_null_refused(wnw_session_new(&s, NULL, NULL));
    assert_null(s);
    wnw_session_free(NULL);
    assert_null_refused(wnw_session_copy(NULL, good));
    assert_null_refused(wnw_session_copy(&s, NULL));
    assert_null(s);
    assert_null_refused(wnw_session_reset(NULL));
    assert_null_refused(wnw_session_rewind(NULL, 0));
    wnw_generated said = wnw_generated_default();
    assert_null_refused(wnw_generate(NULL, good, NULL, NULL));
    assert_null_refused(wnw_generate(&said, NULL, NULL, NULL));
    assert_null_refused(wnw_generate(&said, good, NULL, NULL));
    const wnw_decoder by = wnw_decoder_default();
    assert_null_refused(wnw_generate_by(NULL, &by, NULL, NULL));
    assert_null_refused(wnw_generate_by(&said, NULL, NULL, NULL));
    assert_null_refused(wnw_generate_by(&said, &by, NULL, NULL));
    wnw_generated_clear(&said);
    wnw_generated_clear(NULL);
    const wnw_prompt lacks_tokens = {.n_suffix = 1};
    const wnw_run bad[] = {
        {WNW_INIT(wnw_run), .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_policies = 1}},
        {WNW_INIT(wnw_run),
         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = hole, .n_policies = 2}},
        {WNW_INIT(wnw_run),
         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .n_task_tokens = one}},
        {WNW_INIT(wnw_run),
         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .task_tokens = tasks}},
        {WNW_INIT(wnw_run), .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1,
                                                    .task_tokens = tasks, .n_task_tokens = one}},
        {WNW_INIT(wnw_run), .prompt = &lacks_tokens},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null_refused(wnw_session_begin(good, &bad[i]));
    assert_null_refused(wnw_session_mask_heads(NULL, NULL, 0, WNW_MASK_ALL));
    assert_null_refused(wnw_session_mask_heads(good, NULL, 1, WNW_MASK_ALL));
    assert_ok(wnw_session_mask_heads(good, NULL, 0, WNW_MASK_ALL));
    assert_null_refused(wnw_session_mask_form(NULL, WNW_MASK_ZERO));
    assert_int_equal(wnw_session_mask_form(good, (wnw_mask_form)2), WNW_E_ARG);
    assert_ok(wnw_session_mask_form(good, WNW_MASK_ZERO));
    assert_null_refused(wnw_session_prefill(NULL, fx->tokens, 1, NULL, NULL));
    assert_null_refused(wnw_session_prefill(good, NULL, 1, NULL, NULL));
    assert_null_refused(wnw_session_decode(NULL, 1));
    assert_null(wnw_session_logits(NULL));
    assert_null(wnw_session_policy(NULL));
    assert_null(wnw_session_logits(good));
    assert_int_equal(wnw_session_n_past(NULL), 0);
    assert_null_refused(wnw_session_plan(NULL, p, NULL, &plan, NULL));
    assert_null(plan);
    assert_null_refused(wnw_session_plan(good, NULL, NULL, &plan, NULL));
    assert_null_refused(wnw_session_plan(good, p, NULL, NULL, NULL));
    assert_null_refused(wnw_session_plan_many(NULL, hole, NULL, 1, &plan, NULL));
    assert_null_refused(wnw_session_plan_many(good, NULL, NULL, 1, &plan, NULL));
    assert_null_refused(wnw_session_plan_many(good, hole, NULL, 1, NULL, NULL));
    assert_null_refused(wnw_session_apply(NULL, plan, NULL));
    assert_null_refused(wnw_session_apply(good, NULL, NULL));
    assert_null_refused(wnw_session_compress(NULL, p, NULL, NULL));
    assert_null_refused(wnw_session_compress(good, NULL, NULL, NULL));
    assert_null_refused(wnw_session_renumber(NULL));
    assert_null_refused(wnw_session_begin(NULL, &(wnw_run){WNW_INIT(wnw_run)}));
    assert_null_refused(wnw_session_begin(good, NULL));
    assert_ok(wnw_session_begin(good, &(wnw_run){WNW_INIT(wnw_run)}));
    assert_null_refused(wnw_session_read(NULL, fx->tokens, 1, NULL));
    assert_null_refused(wnw_session_read(good, NULL, 1, NULL));
    assert_null_refused(wnw_cache_get_stats(good, NULL));
    assert_null_refused(wnw_cache_get_stats(NULL, &stats));
    assert_cmp(stats.n_entries, ==, 0);
    assert_cmp(stats.bytes, ==, 0);
    assert_int_equal(wnw_cache_n(NULL, 0, 0), 0);
    assert_null(wnw_cache_positions(NULL, 0, 0));
    wnw_session_free(good);
    wnw_policy_free(p);
}

/* ---- Functions without an object, at the ends of their ranges ---- */

static const int32_t ends[] = {INT32_MIN, -1, 0, 1, 2, 1 << 20, INT32_MAX};
enum { N_ENDS = sizeof ends / sizeof *ends };

static void log_nothing(wnw_log_level level, const char *text, void *user)
{
    (void)level;
    (void)user;
    assert_non_null(text);
}

static void numbers_at_their_ends(void **state)
{
    const struct fixture *fx = *state;
    const int32_t *positions;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    wnw_policy *p = test_policy("snapkv");
    wnw_sampler *sp;
    wnw_kv_type type;
    assert_string_equal(wnw_version(), WNW_VERSION_STRING);
    assert_cmp(wnw_usable_cores(), >=, 1);
    assert_true(wnw_kernel_name()[0]);
    assert_cmp(wnw_n_kernels(), >=, 2);
    assert_null_refused(wnw_kernel_get(0, NULL));
    wnw_set_log(log_nothing, NULL);
    wnw_set_log(NULL, NULL);
    for (int i = 0; i < N_ENDS; i++) {
        const int32_t x = ends[i];
        assert_cmp(wnw_strerror(x)[0], !=, '\0');
        if (x < 0)
            if (x < 0)
                assert_null(wnw_need_name(x));
        wnw_kernel_info kernel = wnw_kernel_info_default();
        assert_int_equal(wnw_kernel_get(x, &kernel), x >= 0 && x < wnw_n_kernels() ? WNW_OK : WNW_E_ARG);
        if (x < 0)
            assert_null(wnw_profile_kind_name(x));
        if (x < 0)
            assert_false(wnw_method_get(x, &info));
        assert_non_null(wnw_phase_name((wnw_phase)x));
        assert_non_null(wnw_kv_type_name((wnw_kv_type)x));
        (void)wnw_kv_entry_bytes((wnw_kv_type)x, 64);
        (void)wnw_kv_entry_bytes(WNW_KV_F16, x);
        (void)wnw_kv_entry_bytes(WNW_KV_Q4_0, x);
        (void)wnw_kv_bytes((wnw_kv_type)x, x, x, x, x);
        (void)wnw_kv_bytes(WNW_KV_F16, 64, 2, 3, x);
        if (x < 0 || x > 3)
            assert_false(wnw_policy_allows(p, (wnw_phase)x, NULL));
        assert_false(wnw_model_layer_is_swa(fx->model, x));
        (void)wnw_token_is_eog(fx->model, x);
        assert_cmp(wnw__topk_sum((const float[]){0.5f, 0.5f}, 2, x), <=, 1);
        const wnw_sampler_params params = {WNW_INIT(wnw_sampler_params), .temp = (float)x, .top_k = x,
                                           .top_p = (float)x, .seed = (uint32_t)x};
        const int rc = wnw_sampler_new(&sp, &params);
        assert_true(rc == WNW_OK ? sp != NULL : sp == NULL && rc == WNW_E_RANGE);
        wnw_sampler_free(sp);
        wnw_plan *plan;
        /* Counts that are possible are refused for their positions: ends is not in 0 .. n - 1. */
        const int rc_plan =
            wnw_plan_new(&plan, 1, 1, x, (const int32_t[]){x}, (const int32_t *const[]){ends});
        assert_int_equal(rc_plan, x == 0 ? WNW_OK : WNW_E_ARG);
        assert_int_equal(wnw_plan_n_tokens(plan), 0);
        assert_int_equal(wnw_plan_head(plan, x, x, &positions), 0);
        wnw_plan_free(plan);
    }
    assert_error(wnw_kv_type_parse(&type, ""), WNW_E_ARG);
    assert_string_not_equal(wnw_last_error(), "");
    assert_int_equal(wnw_sampler_default_params().top_k, 40);
    assert_true(wnw_model_default_params().repack);
    assert_int_equal(wnw_session_default_params().n_ctx, 0);
    wnw_policy_free(p);
}

/* ---- Sessions: any call at any time ---- */

static int32_t any_number(uint64_t *seed)
{
    return test_random(seed) % 3 == 0 ? ends[test_random(seed) % N_ENDS] : (int32_t)(test_random(seed) % 40);
}

static wnw_size any_size(uint64_t *seed)
{
    static const double ratios[] = {NAN, -1, 0, 0.5, 0.999999, 1, 2, INFINITY, -INFINITY};
    static const uint64_t bytes[] = {0, 1, 4096, 100000, UINT64_MAX};
    static const int64_t budgets[] = {INT64_MIN, -1, 0, 1, 7, 20, INT64_MAX};
    return (wnw_size){.kind = (wnw_size_kind)(test_random(seed) % 6),
                      .budget = budgets[test_random(seed) % 7],
                      .ratio = ratios[test_random(seed) % 9],
                      .bytes = bytes[test_random(seed) % 5]};
}

struct walk {
    struct fixture *fx;
    wnw_session *s;
    wnw_plan *plan; /* of some earlier state of the session, or NULL */
    wnw_policy **policies;
    int n_policy;
    uint64_t seed;
};

static const wnw_policy *any_policy(struct walk *w)
{
    return w->policies[test_random(&w->seed) % (uint64_t)w->n_policy];
}

static int read_or_decode(struct walk *w, uint64_t what)
{
    int32_t n = any_number(&w->seed);
    n = n > N_TOKENS ? N_TOKENS : n;
    switch (what) {
    case 0:
        return wnw_session_prefill(w->s, w->fx->tokens, n, NULL, NULL);
    case 1:
        return wnw_session_read(w->s, w->fx->tokens, n, NULL);
    default:
        return wnw_session_decode(w->s, any_number(&w->seed));
    }
}

static int set_something(struct walk *w, uint64_t what)
{
    const wnw_policy *const two[] = {any_policy(w), any_policy(w)};
    const int32_t *const tasks[] = {w->fx->tokens, w->fx->tokens};
    const int32_t n_tokens[] = {any_number(&w->seed) % N_TOKENS, 3};
    const int32_t n = any_number(&w->seed);
    const wnw_run rules = {WNW_INIT(wnw_run),
                           .policy = two[0],
                           .size = any_size(&w->seed),
                           .phase = (wnw_phase)(test_random(&w->seed) % 5),
                           .chunk = any_number(&w->seed),
                           .every = any_number(&w->seed),
                           .target = any_number(&w->seed),
                           .more =
                               &(wnw_run_more){WNW_INIT(wnw_run_more), .once = test_random(&w->seed) % 4 == 0,
                                               .goes_on = test_random(&w->seed) % 4 == 0}};
    const wnw_prompt prompt = {.tokens = w->fx->tokens,
                               .n_tokens = N_TOKENS,
                               .n_context = any_number(&w->seed),
                               .n_prefix = any_number(&w->seed),
                               .suffix = w->fx->tokens,
                               .n_suffix = n > N_TOKENS ? N_TOKENS : n};
    wnw_run_more more = {WNW_INIT(wnw_run_more), .policies = two, .n_policies = n > 2 ? 2 : n};
    wnw_run run = {WNW_INIT(wnw_run), .more = &more};
    switch (what) {
    case 0:
        return wnw_session_begin(w->s, &run);
    case 1:
        return wnw_session_begin(w->s, test_random(&w->seed) % 4 == 0 ? NULL : &rules);
    case 2:
        more.n_tasks = n > 2 ? 2 : n;
        more.task_tokens = tasks;
        more.n_task_tokens = n_tokens;
        return wnw_session_begin(w->s, &run);
    default:
        run.prompt = &prompt;
        return wnw_session_begin(w->s, &run);
    }
}

static int plan_or_apply(struct walk *w, uint64_t what)
{
    const wnw_size size = any_size(&w->seed);
    wnw_report report = {WNW_INIT(wnw_report)};
    if (what == 0)
        return wnw_session_compress(w->s, any_policy(w), &size, &report);
    if (what == 1) {
        wnw_plan_free(w->plan);
        return wnw_session_plan(w->s, any_policy(w), &size, &w->plan, &report);
    }
    if (what == 2 && w->plan)
        return wnw_session_apply(w->s, w->plan, &report);
    return wnw_session_renumber(w->s);
}

static int go_back(struct walk *w)
{
    const int32_t n = wnw_session_n_past(w->s), to = any_number(&w->seed);
    const int rc =
        wnw_session_rewind(w->s, test_random(&w->seed) % 2 ? to : n - (int32_t)(test_random(&w->seed) % 8));
    assert_cmp(wnw_session_n_past(w->s), <=, n);
    return rc;
}

static int start_over(struct walk *w)
{
    wnw_session *copy;
    if (test_random(&w->seed) % 3 == 0)
        return go_back(w);
    if (test_random(&w->seed) % 2)
        return wnw_session_reset(w->s);
    const int rc = wnw_session_copy(&copy, w->s);
    if (rc == WNW_OK) {
        wnw_session_free(w->s);
        w->s = copy;
    }
    return rc;
}

static void assert_sound(const struct walk *w, int rc)
{
    const wnw_session *s = w->s;
    wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
    assert_ok(wnw__cache_check(&s->cache));
    assert_ok(wnw_cache_get_stats(s, &stats));
    assert_cmp(stats.n_entries, >=, 0);
    assert_cmp(stats.bytes, >=, stats.bytes_entries);
    assert_cmp(wnw_session_n_past(s), >=, 0);
    assert_cmp(wnw_session_n_past(s), <=, N_CTX);
    assert_int_equal(wnw_cache_n(s, -1, 0) + wnw_cache_n(s, 0, INT32_MAX), 0);
    assert_null(wnw_cache_positions(s, INT32_MIN, 0));
    if (rc != WNW_OK) {
        assert_cmp(rc, <, 0);
        assert_cmp(rc, >=, WNW_E_NOT_FINITE);
        assert_string_not_equal(wnw_last_error(), "");
        if (rc == WNW_E_NOMEM || rc == WNW_E_BACKEND || rc == WNW_E_NOT_FINITE)
            fail_msg("%s: %s", wnw_strerror(rc), wnw_last_error());
    }
    const float *logits = wnw_session_logits(s);
    if (logits)
        assert_all_finite(logits, w->fx->info.n_vocab);
}

static void one_walk(struct walk *w)
{
    w->s = session_of(w->fx);
    for (int i = 0; i < N_STEPS; i++) {
        const uint64_t what = test_random(&w->seed) % 16;
        const int rc = what < 6    ? read_or_decode(w, what % 3)
                       : what < 11 ? set_something(w, what - 6)
                       : what < 15 ? plan_or_apply(w, what - 11)
                                   : start_over(w);
        w->fx->n_ok += rc == WNW_OK;
        w->fx->n_refused += rc != WNW_OK;
        assert_sound(w, rc);
    }
    wnw_plan_free(w->plan);
    wnw_session_free(w->s);
    w->plan = NULL;
    w->s = NULL;
}

static void any_call_at_any_time(void **state)
{
    struct fixture *fx = *state;
    static const char *const recipes[] = {
        "full",
        "snapkv:window=8",
        "streaming_llm-rerotated",
        "lagkv:lag=8,sink=2",
        "adakv:window=8",
        "h2o",
        "expected_attention",
        "kvzip",
        "kvcompose",
        "criticalkv:window=8",
        "pyramidkv",
        "tova",
        "compilerkv:window=8",
        "noncausal",
        "knorm+rerotate",
    };
    wnw_policy *policies[sizeof recipes / sizeof *recipes];
    struct walk w = {.fx = fx, .policies = policies, .seed = 41};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (wnw_policy_parse(&policies[w.n_policy], recipes[i], NULL) == WNW_OK)
            w.n_policy++;
        else
            fail_msg("%s: %s", recipes[i], wnw_last_error());
    for (int i = 0; i < N_WALKS; i++)
        one_walk(&w);
    print_message("%d calls worked, %d were refused\n", fx->n_ok, fx->n_refused);
    assert_cmp(fx->n_ok, >, N_WALKS * N_STEPS / 8);
    assert_cmp(fx->n_refused, >, N_WALKS * N_STEPS / 8);
    for (int i = 0; i < w.n_policy; i++)
        wnw_policy_free(policies[i]);
}

/* ---- A cache in which nothing is left ---- */

/* A plan may keep no entry of a layer: observing, scoring, renumbering and further reading must work. */
static void empty_heads(void **state)
{
    struct fixture *fx = *state;
    static const char *const recipes[] = {"snapkv:window=4", "lagkv:lag=4,sink=1", "criticalkv:window=4",
                                          "h2o", "kvzip"};
    const int32_t n_head = fx->info.n_layer * fx->info.n_head_kv;
    int32_t *n = calloc((size_t)n_head, sizeof *n);
    const int32_t **positions = calloc((size_t)n_head, sizeof *positions);
    assert_non_null(n);
    assert_non_null(positions);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int rest = 0; rest < 2; rest++) {
            wnw_policy *p = test_policy(recipes[i]);
            wnw_session *s = session_of(fx);
            wnw_plan *plan, *next = NULL;
            assert_ok(test_observe(s, (const wnw_policy *const *)&p, 1));
            test_prefill(s, fx->tokens, 20);
            for (int32_t h = 0; h < n_head; h++) { /* rest: the first head of every layer keeps an entry */
                n[h] = rest && h % fx->info.n_head_kv == 0;
                positions[h] = ends + 2;
            }
            assert_ok(wnw_plan_new(&plan, fx->info.n_layer, fx->info.n_head_kv, 20, n, positions));
            assert_ok(wnw_session_apply(s, plan, NULL));
            (void)wnw_session_plan(s, p, NULL, &next, NULL);
            wnw_plan_free(next);
            (void)wnw_session_renumber(s);
            assert_ok(wnw_session_decode(s, fx->tokens[20]));
            test_prefill(s, fx->tokens, 20);
            (void)wnw_session_compress(s, p, NULL, NULL);
            assert_ok(wnw__cache_check(&s->cache));
            wnw_plan_free(plan);
            wnw_session_free(s);
            wnw_policy_free(p);
        }
    free(n);
    free(positions);
}

/* ---- Sizes of structs ---- */

/* What programs fill. */
static void sizes_are_checked_on_the_way_in(void **state)
{
    const struct fixture *fx = *state;
    wnw_session *s = (wnw_session *)(void *)&s;
    wnw_model *m = (wnw_model *)(void *)&m;
    wnw_prompt *prompt = NULL;
    assert_error(wnw_session_new(&s, fx->model, &(wnw_session_params){.n_ctx = 8}), WNW_E_ARG);
    assert_null(s);
    assert_error(wnw_model_open(&m, "x", &(wnw_model_params){.repack = true}), WNW_E_ARG);
    assert_null(m);
    assert_error(wnw_prompt_build(&prompt, fx->model, &(wnw_prompt_params){.raw = true, .document = "ab"}),
                 WNW_E_ARG);
    assert_null(prompt);
    /* Garbage after the size does not matter. */
    wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = 8, .n_ubatch = -1};
    params.struct_size = (uint32_t)offsetof(wnw_session_params, kv_type);
    assert_error(wnw_session_new(&s, fx->model, &params), WNW_E_RANGE);
    params.struct_size = (uint32_t)offsetof(wnw_session_params, n_ubatch);
    assert_ok(wnw_session_new(&s, fx->model, &params));
    assert_ok(wnw_session_prefill(s, fx->tokens, 8, NULL, NULL));
    assert_error(wnw_session_decode(s, 1), WNW_E_FULL);
    wnw_session_free(s);
}

/* What the library fills: not a byte after the size is written. */
static void sizes_are_kept_on_the_way_out(void **state)
{
    const struct fixture *fx = *state;
    wnw_session *s = session_of(fx);
    wnw_policy *p = test_policy("knorm");
    const wnw_policy *two[2] = {p, p};
    wnw_plan *plans[2];
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    memset(&info, 0x5a, sizeof info);
    info.struct_size = (uint32_t)offsetof(wnw_model_info, n_head);
    assert_int_equal(info.struct_size % _Alignof(wnw_model_info), 4);
    assert_error(wnw_model_get_info(fx->model, &info), WNW_E_ARG);
    info.struct_size = (uint32_t)offsetof(wnw_model_info, n_head_kv);
    assert_ok(wnw_model_get_info(fx->model, &info));
    assert_int_equal(info.n_head, fx->info.n_head);
    assert_int_equal(info.n_head_kv, 0x5a5a5a5a);

    assert_ok(test_observe(s, two, 1));
    assert_ok(wnw_session_prefill(s, fx->tokens, 32, NULL, NULL));
    wnw_report report = wnw_report_default();
    report.struct_size = (uint32_t)offsetof(wnw_report, entries_before);
    report.entries_before = 77;
    assert_ok(wnw_session_plan(s, p, NULL, &plans[0], &report));
    wnw_plan_free(plans[0]);
    assert_true(report.kept_mean == 16);
    assert_int_equal(report.entries_before, 77);
    /* In an array the first size is the distance. */
    struct older {
        uint32_t struct_size;
        char warning[260];
        double kept_mean;
    } many[2] = {{.struct_size = sizeof *many}, {.struct_size = sizeof *many}};
    assert_ok(wnw_session_plan_many(s, two, NULL, 2, plans, (wnw_report *)(void *)many));
    assert_true(many[0].kept_mean == 16 && many[1].kept_mean == 16);
    wnw_plan_free(plans[0]);
    wnw_plan_free(plans[1]);
    many[1].struct_size = 8;
    assert_error(wnw_session_plan_many(s, two, NULL, 2, plans, (wnw_report *)(void *)many), WNW_E_ARG);
    assert_null(plans[0]);
    /* Nothing happens to the cache where the report is not taken. */
    wnw_report forgotten = {.struct_size = 0};
    assert_error(wnw_session_compress(s, p, NULL, &forgotten), WNW_E_ARG);
    assert_error(wnw_session_read(s, fx->tokens, 4, &forgotten), WNW_E_ARG);
    assert_int_equal(wnw_cache_n(s, 0, 0), 32);
    wnw_policy_free(p);
    wnw_session_free(s);
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    static struct fixture fx;
    fx.model = test_model_open("tiny/tiny-llama.gguf");
    fx.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx.model, &fx.info));
    fx.tokens = test_random_tokens(N_TOKENS, fx.info.n_vocab, 5);
    *state = &fx;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = *state;
    wnw_model_free(fx->model);
    free(fx->tokens);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_here),
        cmocka_unit_test(stored_sessions),
        cmocka_unit_test(attention_of_tokens),
        cmocka_unit_test(kept_documents),
        cmocka_unit_test(null_models),
        cmocka_unit_test(null_policies),
        cmocka_unit_test(observations_become_numbers),
        cmocka_unit_test(null_plans_and_numbers),
        cmocka_unit_test(null_sessions),
        cmocka_unit_test(null_engines),
        cmocka_unit_test(numbers_at_their_ends),
        cmocka_unit_test(any_call_at_any_time),
        cmocka_unit_test(empty_heads),
        cmocka_unit_test(sizes_are_checked_on_the_way_in),
        cmocka_unit_test(sizes_are_kept_on_the_way_out),
    };
    return cmocka_run_group_tests_name("the public header", tests, set_up, tear_down);
}
