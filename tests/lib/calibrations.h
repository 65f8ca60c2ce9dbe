/* SPDX-License-Identifier: MIT */
/* What tests of kinds of calibration share. */
#ifndef WNW_TESTS_CALIBRATIONS_H
#define WNW_TESTS_CALIBRATIONS_H

#include "winnow_calibrate.h"

#include <stdint.h>

/* Words of five random letters, len characters with their blanks. Released with free. */
char *test_random_words(size_t len, uint64_t seed);
/* Defaults with one text, a float32 cache, one thread, and the output "dump". */
wnw_calibrate_params test_calibrate_params(const wnw_calibration_text *of, const char *recipe,
                                           const char *options);
/* The calibration must fail with this status and a sentence that contains `says`. */
void test_calibrate_refused(const wnw_model *m, const char *kind, const wnw_calibrate_params *p, int status,
                            const char *says);
/* Runs the calibration, whose one profile must be <kind>.json. A copy of it, released with free. */
char *test_calibrated(const wnw_model *m, const char *kind, const wnw_calibrate_params *p);
/* The profile must have the same bytes with p's threads, with two, and when the work is cancelled where its cost
 * is above `after` and goes on from the journal. `journal` is a template for mkstemp; the caller unlinks it.
 * Returns the profile, released with free. */
char *test_calibrated_alike(const wnw_model *m, const char *kind, const wnw_calibrate_params *p,
                            char *journal, int64_t after);

#endif
