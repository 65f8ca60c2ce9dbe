/* SPDX-License-Identifier: MIT */
#include "calibrations.h"

#include "asserts.h"
#include "files.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *test_random_words(size_t len, uint64_t seed)
{
    char *text = calloc(1, len + 1);
    assert_non_null(text);
    for (size_t i = 0; i < len; i++)
        text[i] = i % 6 == 5 ? ' ' : (char)('a' + test_random(&seed) % 26);
    return text;
}

wnw_calibrate_params test_calibrate_params(const wnw_calibration_text *of, const char *recipe,
                                           const char *options)
{
    static const char *const outputs[] = {"dump"};
    wnw_calibrate_params p = wnw_calibrate_default_params();
    p.options = options;
    p.recipe = recipe;
    p.kv_type = WNW_KV_F32;
    p.texts = of;
    p.n_texts = 1;
    p.n_threads = 1;
    p.outputs = outputs;
    p.n_outputs = 1;
    return p;
}

void test_calibrate_refused(const wnw_model *m, const char *kind, const wnw_calibrate_params *p, int status,
                            const char *says)
{
    wnw_calibration *c;
    assert_error(wnw_calibrate(&c, m, kind, p), status);
    assert_says(says);
    assert_null(c);
}

char *test_calibrated(const wnw_model *m, const char *kind, const wnw_calibrate_params *p)
{
    wnw_calibration *c;
    const char *name;
    assert_ok(wnw_calibrate(&c, m, kind, p));
    char *copy = strdup(wnw_calibration_profile(c, 0, &name));
    assert_non_null(copy);
    assert_memory_equal(name, kind, strlen(kind));
    assert_string_equal(name + strlen(kind), ".json");
    assert_null(wnw_calibration_profile(c, 1, NULL));
    wnw_calibration_free(c);
    return copy;
}

static bool stop_after(int64_t done, int64_t total, const char *what, void *user)
{
    (void)total;
    (void)what;
    return done < *(const int64_t *)user;
}

char *test_calibrated_alike(const wnw_model *m, const char *kind, const wnw_calibrate_params *p,
                            char *journal, int64_t after)
{
    wnw_calibrate_params q = *p;
    wnw_calibration *c;
    char *once = test_calibrated(m, kind, &q);
    q.n_threads = 2;
    char *threads = test_calibrated(m, kind, &q);
    assert_string_equal(once, threads);
    test_file_new(journal);
    unlink(journal); /* its name alone is needed */
    q.journal = journal;
    q.progress = stop_after;
    q.progress_user = &after;
    assert_error(wnw_calibrate(&c, m, kind, &q), WNW_E_CANCELLED);
    after = INT64_MAX;
    char *resumed = test_calibrated(m, kind, &q);
    assert_string_equal(once, resumed);
    free(threads);
    free(resumed);
    return once;
}
