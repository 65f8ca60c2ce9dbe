/* SPDX-License-Identifier: MIT */
/* Text to hide a fact in: generated prose, or a file without its repeated sentences. No sentence is given
 * twice. */
#ifndef SOURCE_H
#define SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
    char *text; /* of the file, without repeated sentences; NULL = generated */
    size_t len; /* bytes of text without repetition: of the file, or the least that every seed gives */
};

/* Opens the file at path, or generated prose if path is NULL. Returns false if the file cannot be read or has
 * no text. */
bool source_open(struct source *s, const char *path);
void source_close(struct source *s);

/* At most n_bytes of whole sentences in their order, from a paragraph that depends on the seed; the caller
 * frees them. n_bytes must not be above s->len. NULL: out of memory. */
char *source_take(const struct source *s, size_t n_bytes, uint64_t seed);

/* Bytes of the first sentence of text[len]: up to and with the blank behind its end, or a line break. */
size_t source_sentence(const char *text, size_t len);

#endif
