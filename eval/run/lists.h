/* SPDX-License-Identifier: MIT */
/* Options whose text is a list: words, sizes. */
#ifndef WNW_EVAL_RUN_LISTS_H
#define WNW_EVAL_RUN_LISTS_H

#include "eval/run/suite.h"
#include "winnow.h"

enum { EVAL_MAX_SIZES = 64 };

/* The words of a list, NULL-terminated; the caller frees the array, which holds the words too. They are separated by `mark`; in a
 * list of recipes (EVAL_RECIPES) by commas, where `key=value` goes on with the recipe before it. NULL: out of memory. */
enum { EVAL_RECIPES = 0 };
char **eval_list_words(const char *list, int mark);
/* Calls add(user, word) for each word until one call fails; the list of --OPTION must have one. Returns an exit code. */
int eval_each_word(const char *option, const char *list, int mark, int (*add)(void *user, const char *word),
                   void *user);
/* The sizes that the options give, else those of the part. Returns an exit code. */
int eval_list_sizes(wnw_size *sizes, int32_t *n, const struct eval_args *args, const struct eval_part *part);
/* Text of a size: "ratio=0.5", "budget=256", "bytes=8388608", "own". */
void eval_size_text(char *out, size_t n, const wnw_size *size);

/* Refuses words of options that none of them has. Returns an exit code. */
int eval_check_words(const struct eval_args *args);

#endif
