/* SPDX-License-Identifier: MIT */
/* Options whose text is a list of words or numbers, or one word of several. */
#ifndef WNW_EVAL_RUN_LISTS_H
#define WNW_EVAL_RUN_LISTS_H

#include "eval/run/suite.h"
#include "winnow.h"

/* The words of a list, NULL-terminated; the caller frees the array, which holds the words too. They are separated by `mark`; in a
 * list of recipes (EVAL_RECIPES) by commas, where `key=value` goes on with the recipe before it. NULL: out of memory. */
enum { EVAL_RECIPES = 0 };
char **eval_list_words(const char *list, int mark);
/* Calls add(user, word) for each word until one call fails; the list of --OPTION must have one. Returns an exit code. */
int eval_each_word(const char *option, const char *list, int mark, int (*add)(void *user, const char *word),
                   void *user);

/* An option that takes numbers and names of lists of them (eval/data/grids.txt). */
struct eval_axis {
    const char *option, *many; /* "lengths"; what there may not be too many of */
    bool (*parse)(double *x, const char *word);
    double min, max;
    const char *neither, *range; /* for messages: what words may be, and numbers (NULL: the same) */
    wnw_size_kind kind;          /* of sizes; also takes "own", which becomes NAN */
    bool is_size;
};
extern const struct eval_axis eval_axis_lengths, eval_axis_depths;

enum { EVAL_MAX_NUMBERS = 64 };
struct eval_numbers {
    double items[EVAL_MAX_NUMBERS];
    int32_t n;
};
/* Adds the numbers of a list. Returns an exit code. */
int eval_add_numbers(struct eval_numbers *out, const struct eval_axis *axis, const char *list);

/* The sizes that the options give, else those of the part, each once. Returns an exit code. */
enum { EVAL_MAX_SIZES = EVAL_MAX_NUMBERS };
int eval_list_sizes(wnw_size *sizes, int32_t *n, const struct eval_args *args, const struct eval_part *part);
/* Text of a size: "ratio=0.5", "budget=256", "bytes=8388608", "own". */
void eval_size_text(char *out, size_t n, const wnw_size *size);

/* Fails for option values that are not among the allowed words. Returns an exit code. */
int eval_check_words(const struct eval_args *args);

#endif
