/* SPDX-License-Identifier: MIT */
/* Changes to GGUF files that damaged files, converters with faults and attackers make: a key or a tensor at a time. */
#ifndef WNW_TESTS_MUTANTS_H
#define WNW_TESTS_MUTANTS_H

#include "gguf_edit.h"

enum { TEST_MUTANT_TEXT = 512 };

/* Changes one or two things of the file, which ones and how depends on the state alone. `said` becomes what was changed. */
void test_mutate(struct test_gguf *f, uint64_t *state, char said[TEST_MUTANT_TEXT]);
/* The single changes: each key of a number left out or another number, each tensor left out or of another type. Makes change `at` of
 * them; false where there are fewer. */
bool test_mutate_once(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT]);
/* Change `at` of those that leave out one tensor, or give it another shape; false where there are fewer. */
bool test_mutate_left_out(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT]);
bool test_mutate_shape(struct test_gguf *f, int32_t at, char said[TEST_MUTANT_TEXT]);
/* Writes the file. A small part of the files gets other bytes in its header, or ends too early; that is said, too. */
void test_mutant_write(const struct test_gguf *f, const char *path, uint64_t *state,
                       char said[TEST_MUTANT_TEXT]);

#endif
