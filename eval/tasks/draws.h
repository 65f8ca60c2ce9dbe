/* SPDX-License-Identifier: MIT */
/* Random things that several tasks need: values, numbers in order, needles. */
#ifndef WNW_EVAL_DRAWS_H
#define WNW_EVAL_DRAWS_H

#include "eval/base/random.h"
#include "eval/tasks/sample.h"

/* Kinds of values: 7 digits, "adjective-noun" or a random UUID, in a buffer of EVAL_MAX_VALUE bytes. */
enum eval_value { EVAL_NUMBER, EVAL_WORDS, EVAL_UUID };
enum { EVAL_MAX_VALUE = 48 };
void eval_draw_value(char out[EVAL_MAX_VALUE], struct eval_random *r, enum eval_value kind);
/* "number", "word", "uuid": what needles call it. */
const char *eval_value_name(enum eval_value kind);
/* The sentence that gives a key its value. The caller frees it; NULL if memory runs out, which the sample notes. */
char *eval_needle_text(struct eval_sample *s, enum eval_value kind, const char *key, const char *value);

/* The numbers 0 .. n - 1. The caller frees them; NULL if memory runs out. */
size_t *eval_iota(size_t n);
/* Draws k distinct numbers of 0 .. n - 1 into out[k], ascending; k <= n. Returns false if memory runs out, which the sample
 * notes. */
bool eval_draw_ascending(struct eval_sample *s, size_t *out, struct eval_random *r, size_t n, size_t k);
/* Number i of n, times[i] times, all in random order: *n_all numbers, which the caller frees. NULL if memory runs out. */
size_t *eval_draw_repeated(size_t *n_all, struct eval_random *r, const size_t *times, size_t n);
/* Whether text i of a list equals one of those before it. Each element has `size` bytes. */
bool eval_is_repeated(const void *list, size_t size, size_t i);

#endif
