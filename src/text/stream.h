/* SPDX-License-Identifier: MIT */
/* The text of tokens as they are generated: whole characters, and nothing after a stop string. */
#ifndef WNW_STREAM_H
#define WNW_STREAM_H

#include "model/model.h"

struct wnw__stream {
    const char *const *stop; /* [n_stop], none of them empty, borrowed */
    int32_t n_stop;
    char *text; /* [n] valid UTF-8, NUL-terminated, owned; NULL before the first byte */
    size_t n, cap;
    size_t ready; /* bytes of the text that no stop string can begin in any more */
    char open[4]; /* [n_open] the beginning of a character */
    size_t n_open;
    bool stopped; /* a stop string came; the text ends before it */
};

/* Starts as {0} with its stop strings. */
void wnw__stream_free(struct wnw__stream *st);
/* Adds bytes[n] of tokens. Bytes that are no UTF-8 become U+FFFD each; the beginning of a character waits for the rest of
 * it. Nothing happens once it has stopped. */
int wnw__stream_add(struct wnw__stream *st, const char *bytes, size_t n);
/* Ends the text: what waits is no character, and no stop string comes any more. */
int wnw__stream_end(struct wnw__stream *st);

#endif
