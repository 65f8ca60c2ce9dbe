/* SPDX-License-Identifier: MIT */
/* `calibrate curves` on tiny models: against a computation of its own, and what must not change a byte. */
#include "calibrations.h"
#include "helpers.h"
#include "peek_calibrate.h"
#include "peek_prompt.h"
#include "peek_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 80, N_STEP = 5, MOST_ROWS = 64, N_RATIO = 99 };

static char *text;

/* ---- Against a computation of its own ---- */

/* One sample and one question, by the definition: worth[row][entry] and the order of key norms. */
struct own {
    struct test_model t;
    int32_t n, n_row;
    double *worth, *key_norm; /* [n_row][n] */
};

/* ||v W_O^h||_2 in double precision. */
static double value_norm(const wnw_model *m, int32_t il, int32_t h, int32_t d, const float *v)
{
    const struct ggml_tensor *w = wnw__model_original(m, m->layers[il].wo);
    double sum = 0;
    assert_int_equal(w->type, GGML_TYPE_F32);
    for (int64_t o = 0; o < w->ne[1]; o++) {
        double x = 0;
        for (int32_t c = 0; c < d; c++)
            x += (double)((const float *)w->data)[o * w->ne[0] + h * d + c] * (double)v[c];
        sum += x * x;
    }
    return sqrt(sum);
}

/* Norms [n_head][n] of a layer as shares of their sum, and norms of keys. */
static void norms_of_layer(struct own *own, const wnw_session *s, int32_t il, double *nu)
{
    const wnw_model_info *info = &own->t.info;
    const int32_t group = info->n_head / info->n_head_kv, d = info->n_embd_head;
    double sum = 0;
    float row[512];
    for (int32_t h = 0; h < info->n_head; h++)
        for (int32_t i = 0; i < own->n; i++) {
            test_read_row(s, false, il, h / group, i, row);
            sum += nu[h * own->n + i] = value_norm(own->t.m, il, h, d, row);
            test_read_row(s, true, il, h / group, i, row);
            double k2 = 0;
            for (int32_t c = 0; c < d; c++)
                k2 += (double)row[c] * (double)row[c];
            own->key_norm[(il * info->n_head_kv + h / group) * own->n + i] = sqrt(k2);
        }
    for (int32_t i = 0; i < info->n_head * own->n; i++)
        nu[i] /= sum;
}

static void read_own(struct own *own, const wnw_prompt *prompt)
{
    const wnw_model_info *info = &own->t.info;
    const struct test_session want = {.kv_type = WNW_KV_F32, .n_ctx = LENGTH + 250, .n_threads = 1};
    const int32_t group = info->n_head / info->n_head_kv;
    wnw_session *s = test_session_new(own->t.m, &want);
    test_prefill(s, prompt->tokens, prompt->n_context);
    own->n = wnw_session_n_past(s);
    own->worth = calloc((size_t)(own->n_row * own->n), sizeof *own->worth);
    own->key_norm = calloc((size_t)(own->n_row * own->n), sizeof *own->key_norm);
    double *nu = calloc((size_t)(info->n_layer * info->n_head * own->n), sizeof *nu);
    for (int32_t il = 0; il < info->n_layer; il++)
        if (!wnw_model_layer_is_swa(own->t.m, il))
            norms_of_layer(own, s, il, nu + il * info->n_head * own->n);
    test_prefill(s, prompt->tokens + prompt->n_context, prompt->n_tokens - prompt->n_context);
    assert_ok(wnw__session_record(s, "newest", true));
    for (int32_t step = 0; step < N_STEP; step++) {
        const int32_t token = test_argmax(wnw_session_logits(s), info->n_vocab);
        if (wnw_token_is_eog(own->t.m, token))
            break;
        assert_ok(wnw_session_decode(s, token));
        for (int32_t il = 0; il < info->n_layer; il++) {
            int32_t n;
            const float *a =
                wnw__newest_rows(wnw__recorders_find(&s->recorders, &wnw__newest_recorder), il, &n);
            for (int32_t h = 0; h < info->n_head && !wnw_model_layer_is_swa(own->t.m, il); h++)
                for (int32_t i = 0; i < own->n; i++) {
                    double *u = &own->worth[(il * info->n_head_kv + h / group) * own->n + i];
                    *u = fmax(*u, (double)a[h * n + i] * nu[(il * info->n_head + h) * own->n + i]);
                }
        }
    }
    free(nu);
    wnw_session_free(s);
}

/* The best count of entries to give up next, one at a time: the head whose next corner of the hull has the least
 * slope gives up one entry. O(total x n_row x n), obvious. */
static void share_out_own(const struct own *own, int32_t *count, int32_t n_gone)
{
    double *sorted = calloc((size_t)(own->n_row * own->n), sizeof *sorted);
    int32_t *scratch = calloc((size_t)own->n, sizeof *scratch);
    const int32_t least = (int32_t)nearbyint(0.01 * own->n);
    for (int32_t row = 0; row < own->n_row; row++) {
        bool used[512] = {false};
        count[row] = wnw_model_layer_is_swa(own->t.m, row / own->t.info.n_head_kv) ? 0 : own->n;
        for (int32_t rank = 0; rank < own->n; rank++) { /* knorm: the smallest norm is the best score */
            int32_t best = -1;
            for (int32_t i = 0; i < own->n; i++)
                if (!used[i] &&
                    (best < 0 || own->key_norm[row * own->n + i] < own->key_norm[row * own->n + best]))
                    best = i;
            used[best] = true;
            sorted[row * own->n + rank] = own->worth[row * own->n + best];
        }
        wnw__curve_hull(sorted + row * own->n, own->n, scratch);
    }
    for (; n_gone > 0; n_gone--) {
        int32_t who = -1;
        for (int32_t row = 0; row < own->n_row; row++)
            if (count[row] > least &&
                (who < 0 || sorted[row * own->n + count[row] - 1] < sorted[who * own->n + count[who] - 1]))
                who = row;
        if (who >= 0)
            count[who]--;
    }
    free(sorted);
    free(scratch);
}

static double dumped(const char *dump, int32_t percent, int32_t row, int32_t n_kv)
{
    char start[64];
    snprintf(start, sizeof start, "\n0,0,0.%02d,%d,%d,", (int)percent, (int)(row / n_kv), (int)(row % n_kv));
    const char *line = strstr(dump, start);
    assert_non_null(line);
    return strtod(line + strlen(start), NULL);
}

static const struct row {
    const char *name, *arch;
} rows[] = {{"llama", "llama"}, {"gemma3, with sliding windows", "gemma3"}};

static void by_the_definition(void **state)
{
    const struct row *row = *state;
    struct own own = {0};
    wnw_calibration *c;
    int32_t *tokens, n_tokens, n_layer_global = 0;
    char *piece;
    wnw_prompt *prompt = NULL;
    test_open_tiny(&own.t, row->arch, 1, 1);
    own.n_row = own.t.info.n_layer * own.t.info.n_head_kv;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p =
        test_calibrate_params(&of, "knorm", "length=80,samples=1,questions=1,generate=5");
    assert_ok(wnw_calibrate(&c, own.t.m, "curves", &p));
    const char *dump = wnw_calibration_output(c, "dump");
    assert_ok(wnw_tokenize(own.t.m, text, strlen(text), false, false, &tokens, &n_tokens));
    assert_ok(wnw_detokenize(own.t.m, tokens, LENGTH, &piece));
    const wnw_prompt_params of_prompt = {WNW_INIT(wnw_prompt_params), .document = piece,
                                         .question = wnw__question(0)};
    assert_ok(wnw_prompt_build(&prompt, own.t.m, &of_prompt));
    read_own(&own, prompt);
    for (int32_t il = 0; il < own.t.info.n_layer; il++)
        n_layer_global += !wnw_model_layer_is_swa(own.t.m, il);
    static const int32_t percents[] = {10, 50, 80, 97};
    for (size_t k = 0; k < sizeof percents / sizeof *percents; k++) {
        int32_t count[MOST_ROWS], n_all = n_layer_global * own.t.info.n_head_kv * own.n;
        share_out_own(&own, count, (int32_t)nearbyint(percents[k] / 100.0 * n_all));
        for (int32_t r = 0; r < own.n_row; r++)
            assert_near(dumped(dump, percents[k], r, own.t.info.n_head_kv) * own.n, count[r], 1.01);
    }
    free(own.worth);
    free(own.key_norm);
    wnw_prompt_free(prompt);
    wnw_free(piece);
    wnw_free(tokens);
    wnw_calibration_free(c);
    test_close(&own.t);
}

/* ---- What changes nothing, and what is refused ---- */

static struct test_model llama;

/* Threads and an interruption change no byte, and the result is a profile that the preset reads. */
static void same_bytes(void **state)
{
    (void)state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p =
        test_calibrate_params(&of, "knorm", "length=60,samples=3,questions=2,generate=3");
    char path[] = "/tmp/winnow-curves-XXXXXX";
    char *once = test_calibrated_alike(llama.m, "curves", &p, path, 60 + 6 + 1);
    wnw_profile *profile;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(once, f);
    fclose(f);
    assert_ok(wnw_profile_new(&profile, llama.m));
    assert_ok(wnw_profile_add_file(profile, path));
    assert_int_equal(profile->n_curve, N_RATIO);
    assert_string_equal(profile->curve_scorer, "knorm");
    wnw_profile_free(profile);
    unlink(path);
    free(once);
}

static const struct bad_row {
    const char *name, *options, *recipe, *says;
    int status;
} bad_rows[] = {
    {"too long", "length=1000000", "knorm", "do not fit the model's context", WNW_E_RANGE},
    {"blocks", "length=60", "lagkv", "inside a block only", WNW_E_ARG},
    {"keeps everything", "length=60", "full", "keeps everything", WNW_E_ARG},
    {"too many questions", "questions=31", "knorm", "questions", WNW_E_ARG},
    {"curves of curves", "length=60", "lukv", "profile of kind curves", WNW_E_ARG},
};

static void refuses(void **state)
{
    const struct bad_row *row = *state;
    const wnw_calibration_text of = {"words", text, strlen(text)};
    const wnw_calibrate_params p = test_calibrate_params(&of, row->recipe, row->options);
    test_calibrate_refused(llama.m, "curves", &p, row->status, row->says);
}

static void questions_differ(void **state)
{
    (void)state;
    for (int32_t i = 0; i < WNW_N_QUESTIONS; i++)
        for (int32_t k = 0; k < i; k++)
            assert_string_not_equal(wnw__question(i), wnw__question(k));
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &llama, "llama", 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes), cmocka_unit_test(questions_differ)};
    text = test_random_words(3000, 8);
    const int failed = run_rows(by_the_definition, rows) +
                       cmocka_run_group_tests(tests, set_up, test_tear_down) +
                       run_rows_with(refuses, bad_rows, set_up, test_tear_down);
    free(text);
    return failed;
}
