/* SPDX-License-Identifier: MIT */
/* Calibrations of gates, on the cache and on hidden states, go on from their journal: from each of its lines to the same bytes. */
#include "asserts.h"
#include "calibrations.h"
#include "files.h"
#include "models.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 64 };

static wnw_model *model;
static char *words[2], path[32];
static wnw_calibration_text texts[2];
static wnw_calibrate_params params;

static int set_up(void **state)
{
    (void)state;
    strcpy(path, "/tmp/winnow-gate-XXXXXX");
    test_file_new(path);
    model = test_model_open("tiny/tiny-llama.gguf");
    for (int i = 0; i < 2; i++) {
        words[i] = test_random_words(700, 7 + (uint64_t)i);
        texts[i] = (wnw_calibration_text){i ? "more words" : "words", words[i], strlen(words[i])};
    }
    params = test_calibrate_params(texts, NULL, "pieces=3,length=40");
    params.n_texts = 2;
    params.journal = path;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wnw_model_free(model);
    free(words[0]);
    free(words[1]);
    return unlink(path);
}

/* The journal of a whole run; *profile has its profile. Both are released with free. */
static char *whole_journal(const char *kind, char **profile)
{
    char *text = NULL;
    size_t cap = 0;
    assert_int_equal(truncate(path, 0), 0);
    *profile = test_calibrated(model, kind, &params);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_cmp(getdelim(&text, &cap, '\0', f), >, 0);
    fclose(f);
    return text;
}

static void write_journal(const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* How often progress was told: of pieces that are learned from, of held-out ones. */
struct told {
    int n_piece, n_held_out;
};

static bool count_told(int64_t done, int64_t total, const char *what, void *user)
{
    struct told *t = user;
    (void)done;
    (void)total;
    t->n_piece += strncmp(what, "piece", 5) == 0;
    t->n_held_out += strncmp(what, "held-out", 8) == 0;
    return true;
}

static struct told told_of(const char *kind)
{
    struct told t = {0};
    params.progress = count_told;
    params.progress_user = &t;
    free(test_calibrated(model, kind, &params));
    params.progress = NULL;
    return t;
}

static const struct kind_row {
    const char *name;
    double least;
    int n_ranked;
    const char *ranked_by[5];
} kind_rows[] = {{"gate", 0.5, 5, {"gate", "lk", "keydiff", "ea", "lev"}}, {"inputgate", -1, 1, {"gate"}}};

static void every_line_is_gone_on_from(void **state)
{
    const char *kind = ((const struct kind_row *)*state)->name;
    char *once, *text = whole_journal(kind, &once);
    size_t ends[MOST_LINES];
    int n = 0;
    for (const char *line = text; (line = strchr(line, '\n')); line++) {
        assert_cmp(n, <, MOST_LINES);
        ends[n++] = (size_t)(line + 1 - text);
    }
    assert_int_equal(n, 1 + 2 * 2 + 2); /* a header, two pieces of each text, two held-out ones */
    for (int k = 0; k < n; k++) {
        const size_t torn = k + 1 < n ? (ends[k + 1] - ends[k]) / 2 : 0;
        write_journal(text, ends[k] + torn);
        char *resumed = test_calibrated(model, kind, &params);
        assert_string_equal(once, resumed);
        free(resumed);
    }
    /* What is remembered is not done again: pieces are read once, and held-out ones not at all. */
    assert_int_equal(truncate(path, 0), 0);
    const struct told whole = told_of(kind);
    write_journal(text, ends[n - 1]);
    const struct told resumed = told_of(kind);
    assert_cmp(resumed.n_piece, >, 0);
    assert_cmp(resumed.n_piece, <, whole.n_piece);
    assert_cmp(whole.n_held_out, >, 0);
    assert_int_equal(resumed.n_held_out, 0);
    free(text);
    free(once);
}

/* Profiles say what held-out pieces came to: of every text a rank correlation with all that scores are ranked by. What gates on the cache
 * have learned from some random words holds for others; for gates on hidden states these are too few. */
static void held_out_pieces_are_told(void **state)
{
    const struct kind_row *row = *state;
    assert_int_equal(truncate(path, 0), 0);
    char *profile = test_calibrated(model, row->name, &params);
    json_t *o = json_loads(profile, 0, NULL);
    const json_t *texts_of = json_object_get(json_object_get(o, "results"), "held_out");
    assert_int_equal(json_array_size(texts_of), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_array_get(texts_of, i);
        assert_string_equal(json_string_value(json_object_get(text, "text")), texts[i].name);
        for (int k = 0; k < 2; k++) {
            const json_t *of = json_object_get(text, k ? "over_all" : "within");
            assert_int_equal(json_object_size(of), row->n_ranked);
            for (int c = 0; c < row->n_ranked; c++) {
                const json_t *rho = json_object_get(of, row->ranked_by[c]);
                assert_true(json_is_real(rho));
                assert_true(fabs(json_real_value(rho)) <= 1);
            }
            assert_true(json_real_value(json_object_get(of, "gate")) > row->least);
        }
    }
    json_decref(o);
    free(profile);
}

/* The scores that are learned from are those of the journal. */
static void remembered_scores_count(void **state)
{
    (void)state;
    static const char of[] = "\"scores\":[0.";
    char *once, *text = whole_journal("gate", &once), *at = strstr(text, of);
    assert_non_null(at);
    at += sizeof of - 1;
    *at = *at == '9' ? '1' : '9';
    write_journal(text, strlen(text));
    char *other = test_calibrated(model, "gate", &params);
    assert_string_not_equal(once, other);
    free(other);
    free(text);
    free(once);
}

struct damage_row {
    const char *name, *of, *with; /* the first of these is replaced; NULL: the number after it is left out */
};

static void damaged(void **state)
{
    const struct damage_row *row = *state;
    char *once, *text = whole_journal("gate", &once), *at = strstr(text, row->of);
    assert_non_null(at);
    if (row->with)
        memcpy(at, row->with, strlen(row->with));
    else
        memset(at + strlen(row->of), ' ', strcspn(at + strlen(row->of), ",") + 1);
    write_journal(text, strlen(text));
    test_calibrate_refused(model, "gate", &params, WNW_E_FORMAT, "cannot be used; remove it");
    free(text);
    free(once);
}

static const struct damage_row damage_rows[] = {
    {"no scores of a piece", "{\"scores\"", "{\"Scores\""},
    {"a score too few", "\"scores\":[", NULL},
    {"no predictions", ",\"scores\"", ",\"Scores\""},
    {"no correlations", "\"within\"", "\"Within\""},
};

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(remembered_scores_count)};
    const int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    return failed + run_rows_with(every_line_is_gone_on_from, kind_rows, set_up, tear_down) +
           run_rows_with(held_out_pieces_are_told, kind_rows, set_up, tear_down) +
           run_rows_with(damaged, damage_rows, set_up, tear_down);
}
