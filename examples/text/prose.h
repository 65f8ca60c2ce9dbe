/* SPDX-License-Identifier: MIT */
/*
 * English text that never repeats itself: short paragraphs about people in small towns, made by a grammar
 * from a seed, the same on every machine. No sentence comes twice in the life of a generator, and no
 * PROSE_RUN words in a row within sentences, so that no part of a text is a near copy of another. Every seed
 * is good for PROSE_MIN_BYTES at least (some 60,000 tokens); once there is nothing new to say, prose_next
 * returns NULL.
 */
#ifndef PROSE_H
#define PROSE_H

#include <stddef.h>
#include <stdint.h>

enum { PROSE_RUN = 8, PROSE_MIN_BYTES = 250000 };

struct prose;

/* Makes a generator; NULL if memory runs out. */
struct prose *prose_new(uint64_t seed);
void prose_free(struct prose *p);

/* The next paragraph, its sentences separated by one blank, without a line break at its end; the caller frees
 * it. NULL: out of memory, or nothing new is left to say. */
char *prose_next(struct prose *p);

#endif
