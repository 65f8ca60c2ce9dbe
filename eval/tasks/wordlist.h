/* SPDX-License-Identifier: MIT */
/* Plain English words for keys and lists, of 3 to 9 lower-case letters. No word occurs within another of any
 * list, so that a search for one word finds no other. */
#ifndef WNW_EVAL_WORDLIST_H
#define WNW_EVAL_WORDLIST_H

#include <stddef.h>

/* The version changes with the lists and is part of every run's description. */
#define EVAL_WORDLIST_VERSION "1"

extern const char *const eval_adjectives[], *const eval_nouns[], *const eval_verbs[];
extern const size_t eval_n_adjectives, eval_n_nouns, eval_n_verbs;

#endif
