/* SPDX-License-Identifier: MIT */
/* Text as code points, and the properties of code points that metrics need: white space, punctuation, letter
 * or digit, lower case. */
#ifndef WNW_EVAL_CHARS_H
#define WNW_EVAL_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eval_chars {
    uint32_t *at; /* [n], owned; may hold zeros */
    size_t n;
};

/* Code points of s[len]; bytes that are not UTF-8 become U+FFFD. false: out of memory. */
bool eval_chars_from(struct eval_chars *out, const char *s, size_t len);
/* false: out of memory. */
bool eval_chars_copy(struct eval_chars *out, const struct eval_chars *from);
/* Adds the code points of s[len] to a list[*n] that was filled by this function alone. false: out of memory. */
bool eval_chars_append(struct eval_chars **list, int32_t *n, const char *s, size_t len);
void eval_chars_free(struct eval_chars *c);
void eval_chars_free_list(struct eval_chars *list, int32_t n);

/* Replaces each code point by its lower case, which is a single code point. */
void eval_chars_lower(struct eval_chars *c);
/* Removes the 32 punctuation marks of ASCII. */
void eval_chars_drop_punctuation(struct eval_chars *c);
/* Replaces every run of white space by one blank and removes those at the ends. */
void eval_chars_collapse(struct eval_chars *c);

/* Whether `part` occurs in c; an empty one always does. */
bool eval_chars_contain(const struct eval_chars *c, const struct eval_chars *part);
bool eval_chars_equal(const struct eval_chars *a, const struct eval_chars *b);

bool eval_is_space(uint32_t c);  /* as Python's str.isspace */
bool eval_is_digit(uint32_t c);  /* ASCII only */
bool eval_is_alnum(uint32_t c);  /* as Python's str.isalnum */
uint32_t eval_lower(uint32_t c); /* as Python's str.lower, where that is one code point */

#endif
