/* SPDX-License-Identifier: MIT */
/*
 * The known name that a mistyped word meant: the one at the smallest edit distance (letters that are inserted,
 * left out or replaced), the first of several. It counts as a typing error while at most a third of the longer
 * word, rounded up, is wrong, or two letters of a short one, and some letter of the name is right.
 */
#ifndef WNW_BASE_NEAREST_H
#define WNW_BASE_NEAREST_H

#include <stddef.h>

/* Starts with .word and .len set, and is then shown every name. */
struct wnw__guess {
    const char *word;
    size_t len;
    const char *best; /* NULL while no name is near enough */
    int distance;
};
void wnw__guess_name(struct wnw__guess *g, const char *name);

/* The same for a list of names, which ends with NULL. */
const char *wnw__nearest(const char *word, const char *const *names);

#endif
