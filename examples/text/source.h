/* SPDX-License-Identifier: MIT */
/* Text to hide a fact in: generated prose, or what a file says for the first time. Nothing is given twice. */
#ifndef SOURCE_H
#define SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
    char *text; /* of the file, without sentences that stood in it before; NULL = generated */
    size_t len; /* bytes of text without repeats: of the file, or that every seed is good for */
};

/* path NULL: generated prose. false: the file cannot be read or has no text. */
bool source_open(struct source *s, const char *path);
void source_close(struct source *s);

/* At most n_bytes of whole sentences in their order, from a paragraph that depends on the seed; the caller
 * frees them. n_bytes must not be above s->len. NULL: out of memory. */
char *source_take(const struct source *s, size_t n_bytes, uint64_t seed);

/* Bytes of the first sentence of text[len]: up to and with the blank behind its end, or a line break. */
size_t source_sentence(const char *text, size_t len);

#endif
