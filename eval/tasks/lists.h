/* SPDX-License-Identifier: MIT */
/* Lists of words and texts that samples are made of. They are files of eval/data/, from which cmake/lists.cmake makes code. */
#ifndef WNW_EVAL_LISTS_H
#define WNW_EVAL_LISTS_H

#include <stddef.h>

/* The versions change with the lists and are part of every run's description. */
#define EVAL_WORDS_VERSION "1"
#define EVAL_PROSE_VERSION "1" /* and with the grammar */

struct eval_list {
    const char *const *at; /* [n] */
    size_t n;
};

/* words.txt */
extern const struct eval_list eval_adjectives, eval_nouns, eval_verbs, eval_name_onsets, eval_word_onsets,
    eval_products;
/* prose.txt */
extern const struct eval_list eval_prose_patterns, eval_prose_clauses, eval_prose_openers, eval_prose_manners,
    eval_prose_adjectives, eval_prose_nouns, eval_prose_verbs;
/* suites.txt: the lines of suites and studies; the most tokens of short answers, "TASK N" */
extern const struct eval_list eval_suites, eval_short_answers;
/* sets.txt: three texts for each enum eval_form (set.h) */
extern const struct eval_list eval_forms;

#endif
