/* SPDX-License-Identifier: MIT */
/* The patterns and lists that prose.c draws from. */
#ifndef PROSE_GRAMMAR_H
#define PROSE_GRAMMAR_H

#include <stddef.h>

/*
 * A pattern is a sentence with slots in braces. A lower-case name draws from the list of that name, which may
 * hold slots again; "{+name}" puts "a" or "an" before it. The paragraph's own: {P} and {Q} are two people
 * with both names, {p} and {q} their first names, {he} {his} {him} stand for the first of them, {T} is the
 * town. {n} is a number from three to twenty in words, {N} one in digits, {y} a year.
 */
struct list {
    const char *name;
    const char *const *items;
    size_t n;
};

/* Paragraphs about one subject: the first n_first patterns can open one, the others follow in any order. */
struct topic {
    const char *const *patterns;
    size_t n, n_first;
};

extern const struct list prose_lists[];
extern const size_t prose_n_lists;
extern const struct topic prose_topics[];
extern const size_t prose_n_topics;

#endif
