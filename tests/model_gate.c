/* SPDX-License-Identifier: MIT */
/* The calibration of gates goes on from its journal: from each of its lines to the same bytes. */
#include "asserts.h"
#include "calibrations.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 64 };

static wnw_model *model;
static char *words[2], path[] = "/tmp/winnow-gate-XXXXXX";
static wnw_calibration_text texts[2];
static wnw_calibrate_params params;

static int set_up(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    model = test_model_open("tiny/tiny-llama.gguf");
    for (int i = 0; i < 2; i++) {
        words[i] = test_random_words(700, 7 + (uint64_t)i);
        texts[i] = (wnw_calibration_text){i ? "more words" : "words", words[i], strlen(words[i])};
    }
    params = test_calibrate_params(texts, NULL, "pieces=3,length=40");
    params.n_texts = 2;
    params.journal = path;
    return fd < 0 || close(fd) != 0;
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
static char *whole_journal(char **profile)
{
    char *text = NULL;
    size_t cap = 0;
    assert_int_equal(truncate(path, 0), 0);
    *profile = test_calibrated(model, "gate", &params);
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

static bool count_units(int64_t done, int64_t total, const char *what, void *user)
{
    int *n = user;
    (void)done;
    (void)total;
    *n += strstr(what, "layer 0") != NULL;
    return true;
}

static void every_line_is_gone_on_from(void **state)
{
    (void)state;
    char *once, *text = whole_journal(&once);
    size_t ends[MOST_LINES];
    int n = 0;
    for (const char *line = text; (line = strchr(line, '\n')); line++) {
        assert_cmp(n, <, MOST_LINES);
        ends[n++] = (size_t)(line + 1 - text);
    }
    assert_cmp(n, >, 2 * 2 + 2); /* a header, two pieces of each text in layers, two held-out ones */
    for (int k = 0; k < n; k++) {
        const size_t torn = k + 1 < n ? (ends[k + 1] - ends[k]) / 2 : 0;
        write_journal(text, ends[k] + torn);
        char *resumed = test_calibrated(model, "gate", &params);
        assert_string_equal(once, resumed);
        free(resumed);
    }
    /* What is remembered is not done again. */
    int n_step = 0;
    params.progress = count_units;
    params.progress_user = &n_step;
    write_journal(text, ends[n - 1]);
    free(test_calibrated(model, "gate", &params));
    params.progress = NULL;
    assert_int_equal(n_step, 0);
    free(text);
    free(once);
}

struct damage_row {
    const char *name, *of, *with; /* the first of these is replaced */
};

static void damaged(void **state)
{
    const struct damage_row *row = *state;
    char *once, *text = whole_journal(&once), *at = strstr(text, row->of);
    assert_non_null(at);
    memcpy(at, row->with, strlen(row->with));
    write_journal(text, strlen(text));
    test_calibrate_refused(model, "gate", &params, WNW_E_FORMAT, "cannot be used; remove it");
    free(text);
    free(once);
}

static const struct damage_row damage_rows[] = {
    {"no sums", "\"moments\"", "\"Moments\""},
    {"one head too many", "\"moments\":[\"000", "\"moments\":[\"\",\""},
    {"no digits", "\"moments\":[\"00", "\"moments\":[\"0x"},
    {"too many entries", "\"moments\":[\"00", "\"moments\":[\"f0"},
    {"no scores", "\"scores\"", "\"Scores\""},
    {"no correlations", "\"within\"", "\"Within\""},
};

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_line_is_gone_on_from)};
    const int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    strcpy(path, "/tmp/winnow-gate-XXXXXX");
    return failed + run_rows_with(damaged, damage_rows, set_up, tear_down);
}
