/* SPDX-License-Identifier: MIT */
/* Plain English words for keys and lists: 3 to 9 lower-case letters; none occurs within another of any list, so that
 * looking for one finds no other. */
#ifndef WNW_EVAL_WORDLIST_H
#define WNW_EVAL_WORDLIST_H

#include <stddef.h>

/* Changes with the lists; a part of every run's description. */
#define EVAL_WORDLIST_VERSION "1"

extern const char *const eval_adjectives[], *const eval_nouns[], *const eval_verbs[];
extern const size_t eval_n_adjectives, eval_n_nouns, eval_n_verbs;

#endif
