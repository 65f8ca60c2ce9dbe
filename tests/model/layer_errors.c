/* SPDX-License-Identifier: MIT */
/* `calibrate layers` on tiny models: errors compared with sessions whose entries are really removed, and changes that must
 * not alter a byte. */
#include "calibrations.h"
#include "files.h"
#include "helpers.h"
#include "peek_session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 90, N_STEP = 4, KEEP = 20, MOST_LAYERS = 16 };
#define OPTIONS "keep=20,length=90,samples=2,generate=4,tokens=text"
#define RECIPE  "snapkv:window=8"

static char *text; /* of words of all kinds, longer than the samples need */

/* The error in the line text,sample,step,layer,error of the first sample. */
static double dumped(const char *dump, int32_t step, int32_t il)
{
    char start[64];
    snprintf(start, sizeof start, "\n0,0,%d,%d,", (int)step, (int)il);
    const char *line = strstr(dump, start);
    assert_non_null(line);
    return strtod(line + strlen(start), NULL);
}

/* ---- Against sessions without the entries ---- */

/* ||W (a - b)|| / (||W b|| + 1e-5) in double precision; W is the layer's float32 output projection. */
static double distance(const wnw_model *m, int32_t il, const float *a, const float *b)
{
    const struct ggml_tensor *w = wnw__model_original(m, m->layers[il].wo);
    double change = 0, full = 0;
    assert_int_equal(w->type, GGML_TYPE_F32);
    for (int64_t o = 0; o < w->ne[1]; o++) {
        const float *row = (const float *)w->data + o * w->ne[0];
        double x = 0, y = 0;
        for (int64_t i = 0; i < w->ne[0]; i++) {
            x += (double)row[i] * ((double)a[i] - (double)b[i]);
            y += (double)row[i] * (double)b[i];
        }
        change += x * x;
        full += y * y;
    }
    return sqrt(change) / (sqrt(full) + 1e-5);
}

static const float *output_of(wnw_session *s, int32_t il)
{
    const float *out;
    wnw__outputs_of(wnw__recorders_find(&s->recorders, &wnw__outputs_recorder), il, &out);
    assert_non_null(out);
    return out;
}

static const struct row {
    const char *name, *arch;
} rows[] = {{"llama", "llama"}, {"qwen2", "qwen2"}, {"gemma3, with sliding windows", "gemma3"}};

static void as_if_entries_were_gone(void **state)
{
    const struct row *row = *state;
    struct test_model t;
    wnw_calibration *c;
    int32_t *tokens, n_tokens, *bos, n_bos;
    test_open_tiny(&t, row->arch, 1, 1);
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p = test_calibrate_params(&of, RECIPE, OPTIONS);
    assert_ok(wnw_calibrate(&c, t.m, "layers", &p));
    const char *dump = wnw_calibration_output(c, "dump");
    assert_ok(wnw_tokenize(t.m, text, strlen(text), false, false, &tokens, &n_tokens));
    assert_ok(wnw_tokenize(t.m, "", 0, true, false, &bos, &n_bos));
    const struct test_session want = {.kv_type = WNW_KV_F32, .n_ctx = LENGTH + N_STEP + 8, .n_threads = 1};
    wnw_policy *policy = test_policy("snapkv:window=8");
    wnw_session *s = test_session_new(t.m, &want), *gone[MOST_LAYERS];
    const wnw_policy *const policies[] = {policy};
    const wnw_size size = size_budget(KEEP);
    wnw_plan *plan;
    assert_ok(test_observe(s, policies, 1));
    if (n_bos > 0)
        test_prefill(s, bos, n_bos);
    test_prefill(s, tokens, LENGTH);
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    assert_ok(wnw__session_record(s, "outputs", true));
    for (int32_t il = 0; il < t.info.n_layer; il++) {
        wnw_plan *of_layer = test_plan_of_layer(s, plan, il);
        assert_ok(wnw_session_copy(&gone[il], s));
        assert_ok(wnw_session_apply(gone[il], of_layer, NULL));
        wnw_plan_free(of_layer);
    }
    int32_t n_checked = 0;
    for (int32_t step = 0; step < N_STEP; step++) {
        assert_ok(wnw_session_decode(s, tokens[LENGTH + step]));
        for (int32_t il = 0; il < t.info.n_layer; il++) {
            assert_ok(wnw_session_decode(gone[il], tokens[LENGTH + step]));
            const double error = distance(t.m, il, output_of(gone[il], il), output_of(s, il));
            if (wnw_model_layer_is_swa(t.m, il)) {
                assert_near(dumped(dump, step, il), 0, 0);
                continue;
            }
            assert_near(dumped(dump, step, il), error,
                        test_rounding(2e-5, 2) + test_rounding(1e-4, 4) * error);
            n_checked += error > 1e-3;
        }
    }
    assert_cmp(n_checked, >=, N_STEP); /* there are errors to compare */
    for (int32_t il = 0; il < t.info.n_layer; il++)
        wnw_session_free(gone[il]);
    wnw_session_free(s);
    wnw_plan_free(plan);
    wnw_policy_free(policy);
    wnw_free(tokens);
    wnw_free(bos);
    wnw_calibration_free(c);
    test_close(&t);
}

/* ---- What changes nothing, and what is refused ---- */

static struct test_model llama;

static void same_bytes(void **state)
{
    (void)state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    wnw_calibrate_params p = test_calibrate_params(&of, RECIPE, OPTIONS);
    char journal[] = "/tmp/winnow-layers-XXXXXX";
    /* cancelled in the second sample */
    char *once = test_calibrated_alike(llama.m, "layers", &p, journal, LENGTH + N_STEP + 1);
    wnw_calibration *c;
    p.journal = journal;
    p.recipe = "keydiff";
    assert_error(wnw_calibrate(&c, llama.m, "layers", &p), WNW_E_MISMATCH);
    assert_says("policy");
    unlink(journal);
    free(once);
}

/* The profile is one that the layer budget reads. */
static void is_read(void **state)
{
    (void)state;
    const wnw_calibration_text of[] = {{"words", text, strlen(text)},
                                       {"more words", text + 200, strlen(text) - 200}};
    wnw_calibrate_params p = test_calibrate_params(of, RECIPE, OPTIONS);
    char path[] = "/tmp/winnow-layers-XXXXXX";
    wnw_profile *profile;
    p.n_texts = 2;
    char *json = test_calibrated(llama.m, "layers", &p);
    test_file_of(path, json, strlen(json));
    assert_contains(json, "\"more words, 90 tokens\":[");
    assert_contains(json,
                    "\"words, 45 tokens\":["); /* half of it, because that is more than twice what is kept */
    assert_null(strstr(json, ", question\":[")); /* what the text goes on with answers no question */
    assert_contains(json, "\"samples of 45 tokens\":{");
    assert_ok(wnw_profile_new(&profile, llama.m));
    assert_ok(wnw_profile_add_file(profile, path));
    assert_int_equal(wnw_profile_kinds(profile), 1u << WNW_PROFILE_LAYERS);
    double sum = 0;
    for (int32_t il = 0; il < profile->model.n_layer; il++) {
        assert_cmp(profile->layer_share[il], >, 0);
        sum += profile->layer_share[il];
    }
    assert_near(sum, 1, 1e-9);
    wnw_profile_free(profile);
    unlink(path);
    free(json);
}

/* Sets with and without a question, of two lengths: every one has the same weight in the mean. */
static void mean_over_sets(void **state)
{
    (void)state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p =
        test_calibrate_params(&of, RECIPE, "keep=20,length=90,lengths=2,samples=2,generate=4");
    char *json = test_calibrated(llama.m, "layers", &p);
    json_t *o = json_loads(json, 0, NULL);
    const json_t *results = json_object_get(o, "results"), *sets = json_object_get(results, "per_set"),
                 *mean = json_object_get(results, "avg_score");
    const char *const names[] = {"words, 90 tokens", "words, 90 tokens, question", "words, 45 tokens",
                                 "words, 45 tokens, question"};
    assert_int_equal(json_object_size(sets), 4);
    for (size_t il = 0; il < json_array_size(mean); il++) {
        double sum = 0;
        for (int i = 0; i < 4; i++)
            sum += json_number_value(json_array_get(json_object_get(sets, names[i]), il));
        assert_near(json_number_value(json_array_get(mean, il)), sum / 4, 1e-9);
    }
    /* Each part is compared with the others: the lengths in turn, and questions; there is one text. */
    const json_t *moves = json_object_get(results, "moves"),
                 *asked = json_object_get(moves, "samples with a question");
    assert_int_equal(json_object_size(moves), 3);
    double overlap = 0;
    for (size_t il = 0; il < json_array_size(mean); il++) {
        double share[2] = {0};
        for (int i = 0; i < 4; i++)
            share[i % 2] += json_number_value(json_array_get(json_object_get(sets, names[i]), il)) / 2;
        overlap += share[0] < share[1] ? share[0] : share[1];
        assert_near(json_number_value(json_array_get(json_object_get(asked, "share"), il)), share[1], 1e-9);
    }
    assert_near(json_number_value(json_object_get(asked, "overlap")), overlap, 1e-9);
    json_decref(o);
    free(json);
}

static const struct bad_row {
    const char *name, *options, *recipe, *says;
    int status;
    size_t len; /* of the text; 0 = all */
} bad_rows[] = {
    {"keeps more than there is", "keep=90,length=90", "snapkv", "larger length", WNW_E_RANGE, 0},
    {"too long", "length=1000000", "snapkv", "do not fit the model's context", WNW_E_RANGE, 0},
    {"text too short", OPTIONS, "snapkv:window=8", "at least", WNW_E_RANGE, 60},
    {"a length of too few", "keep=20,length=90,lengths=4", "snapkv:window=8", "fewer lengths", WNW_E_RANGE,
     0},
    {"answers of the text", "keep=20,length=90,ends=question,tokens=text", "snapkv:window=8",
     "leave out tokens=text", WNW_E_ARG, 0},
    {"keeps everything", OPTIONS, "full", "keeps everything", WNW_E_ARG, 0},
    {"no such policy", OPTIONS, "snapk", "did you mean", WNW_E_ARG, 0},
    {"no retrieval heads", OPTIONS, NULL, "profile of kind srh", WNW_E_ARG, 0},
    {"no such option", "keeps=3", "snapkv", "did you mean", WNW_E_ARG, 0},
};

static void refuses(void **state)
{
    const struct bad_row *row = *state;
    const wnw_calibration_text of = {"words", text, row->len ? row->len : strlen(text)};
    const wnw_calibrate_params p = test_calibrate_params(&of, row->recipe, row->options);
    test_calibrate_refused(llama.m, "layers", &p, row->status, row->says);
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &llama, "llama", 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes), cmocka_unit_test(is_read),
                                       cmocka_unit_test(mean_over_sets)};
    text = test_random_words(6000, 8);
    const int failed = run_rows(as_if_entries_were_gone, rows) +
                       cmocka_run_group_tests(tests, set_up, test_tear_down) +
                       run_rows_with(refuses, bad_rows, set_up, test_tear_down);
    free(text);
    return failed;
}
