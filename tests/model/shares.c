/* SPDX-License-Identifier: MIT */
/* `calibrate shares` on tiny models: against KVzip's own plans, and what must not change a byte. */
#include "calibrations.h"
#include "helpers.h"
#include "peek_calibrate.h"
#include "peek_prompt.h"
#include "peek_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SIZE = 6 };
static const int parts[N_SIZE][2] = {{3, 4}, {1, 2}, {1, 4}, {1, 8}, {1, 16}, {1, 32}}; /* the sizes */

static char *text;

/* ---- Against plans of the preset, which shares the same number of entries out over the whole model ---- */

/* The first tokens of the text as a prompt whose document has a multiple of 32 tokens after the header. Then every
 * size is a whole number of entries per head. Returns how many tokens of the text it takes. */
static int32_t make_prompt(const wnw_model *m, wnw_prompt **out, int32_t *n_first)
{
    int32_t *tokens, n_tokens, n;
    assert_ok(wnw_tokenize(m, text, strlen(text), false, false, &tokens, &n_tokens));
    for (n = 90;; n++) {
        char *piece;
        assert_cmp(n, <, 250);
        assert_ok(wnw_detokenize(m, tokens, n, &piece));
        const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = piece,
                                          .question = wnw__question(0)};
        wnw_prompt *prompt;
        assert_ok(wnw_prompt_build(&prompt, m, &params));
        *out = prompt;
        wnw_free(piece);
        *n_first = prompt->n_prefix > 0 ? prompt->n_prefix : 4;
        if ((prompt->n_context - *n_first) % 32 == 0)
            break;
        wnw_prompt_free(prompt);
    }
    wnw_free(tokens);
    return n;
}

static int32_t dumped(const char *dump, const char *size, int32_t il, int32_t ih)
{
    for (const char *line = dump; (line = strchr(line, '\n')) && *++line;) {
        char word[16];
        int at_text, piece, entries, layer, head, count;
        if (sscanf(line, "%d,%d,%d,%15[^,],%d,%d,%d", &at_text, &piece, &entries, word, &layer, &head,
                   &count) == 7 &&
            strcmp(word, size) == 0 && layer == il && head == ih)
            return count;
    }
    return -1;
}

static wnw_plan *plan_of(const struct test_model *t, const wnw_prompt *prompt, int32_t budget)
{
    const struct test_session want = {.kv_type = WNW_KV_F32, .n_ctx = 700, .n_threads = 1};
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = budget};
    const wnw_policy *policy;
    wnw_policy *own;
    wnw_session *s = test_session_new(t->m, &want);
    wnw_plan *plan;
    own = test_policy("kvzip");
    policy = own;
    const wnw_prompt header = {
        .n_prefix = prompt->n_prefix, .suffix = prompt->suffix, .n_suffix = prompt->n_suffix};
    assert_ok(wnw_session_begin(
        s,
        &(wnw_run){WNW_INIT(wnw_run), .prompt = &header,
                   .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &policy, .n_policies = 1}}));
    test_prefill(s, prompt->tokens, prompt->n_context);
    assert_ok(wnw_session_plan(s, own, &size, &plan, NULL));
    wnw_session_free(s);
    wnw_policy_free(own);
    return plan;
}

static const struct row {
    const char *name, *arch;
} rows[] = {
    {"llama", "llama"}, {"qwen2, with a chat header", "qwen2"}, {"gemma3, with sliding windows", "gemma3"}};

static void as_plans_of_kvzip(void **state)
{
    const struct row *row = *state;
    static const char *const sizes[N_SIZE] = {"0.75", "0.5", "0.25", "0.125", "0.0625", "0.03125"};
    struct test_model t = {0};
    wnw_prompt *prompt = NULL;
    wnw_calibration *c;
    char options[96];
    int32_t n_first, checked = 0;
    test_open_tiny(&t, row->arch, 1, 1);
    const int32_t n = make_prompt(t.m, &prompt, &n_first), n_doc = prompt->n_context - n_first;
    snprintf(options, sizeof options, "pieces=1,shortest=%d,longest=%d,extra=%d", (int)n, (int)n, (int)n);
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p = test_calibrate_params(&of, NULL, options);
    assert_ok(wnw_calibrate(&c, t.m, "shares", &p));
    const char *dump = wnw_calibration_output(c, "dump");
    for (int i = 0; i < N_SIZE; i++) {
        wnw_plan *plan = plan_of(&t, prompt, n_first + n_doc * parts[i][0] / parts[i][1]);
        for (int32_t il = 0; il < t.info.n_layer; il++)
            for (int32_t ih = 0; ih < t.info.n_head_kv; ih++) {
                const int32_t *pos, kept = wnw_plan_head(plan, il, ih, &pos);
                if (wnw_model_layer_is_swa(t.m, il)) {
                    assert_int_equal(dumped(dump, sizes[i], il, ih), -1);
                    continue;
                }
                assert_int_equal(dumped(dump, sizes[i], il, ih), kept - n_first);
                checked++;
            }
        wnw_plan_free(plan);
    }
    assert_cmp(checked, >=, N_SIZE);
    wnw_calibration_free(c);
    wnw_prompt_free(prompt);
    test_close(&t);
}

/* ---- What changes nothing, and what is refused ---- */

static struct test_model llama;

/* Threads and an interruption change no byte, and the result is a profile that is read. */
static void same_bytes(void **state)
{
    (void)state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p =
        test_calibrate_params(&of, NULL, "target=kvcompose,pieces=3,shortest=40,longest=80,extra=120");
    char path[] = "/tmp/winnow-shares-XXXXXX";
    char *once = test_calibrated_alike(llama.m, "shares", &p, path, 40 + 60 + 1);
    wnw_profile *profile;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(once, f);
    fclose(f);
    assert_ok(wnw_profile_new(&profile, llama.m));
    assert_ok(wnw_profile_add_file(profile, path));
    assert_int_equal(profile->n_best, N_SIZE);
    for (int i = 0; i < N_SIZE; i++)
        assert_near(profile->best_size[i], (double)parts[i][0] / parts[i][1], 0.01);
    wnw_profile_free(profile);
    unlink(path);
    free(once);
}

static const struct bad_row {
    const char *name, *options, *says;
    int status;
} bad_rows[] = {
    {"too long", "longest=1000000", "read twice, do not fit the model's context", WNW_E_RANGE},
    {"one more that is too long", "extra=1000000", "read twice, do not fit the model's context", WNW_E_RANGE},
    {"the shortest is longer", "shortest=90,longest=80", "shortest is 90 and longest 80", WNW_E_ARG},
    {"another target", "target=snapkv", "kvzip", WNW_E_ARG},
    {"no such setting", "length=100", "length", WNW_E_ARG},
};

static void refuses(void **state)
{
    const struct bad_row *row = *state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p = test_calibrate_params(&of, NULL, row->options);
    test_calibrate_refused(llama.m, "shares", &p, row->status, row->says);
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &llama, "llama", 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes)};
    text = test_random_words(3000, 8);
    const int failed = run_rows(as_plans_of_kvzip, rows) +
                       cmocka_run_group_tests(tests, set_up, test_tear_down) +
                       run_rows_with(refuses, bad_rows, set_up, test_tear_down);
    free(text);
    return failed;
}
