/* SPDX-License-Identifier: MIT */
/* Why prompts were read: where the tokens of the last requests came from, and where a prompt and what was there first differ. For any thread. */
#ifndef WNW_SERVE_WHY_H
#define WNW_SERVE_WHY_H

#include "serve/park_file.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_WHY_KEPT = 10, SERVE_WHY_TEXT = 160 };

struct serve_why {
    struct serve_owner owner;
    int32_t slot;
    int32_t n_slot, n_parked, n_document, n_read; /* tokens, by where they came from */
    bool broke;                                   /* something else was there from token `at` on */
    bool of_others;                               /* and that was of another client: `was` is not told */
    int32_t at;
    char before[SERVE_WHY_TEXT], was[SERVE_WHY_TEXT],
        is[SERVE_WHY_TEXT]; /* texts before it, and from it on */
    const char *cause;      /* what is likely; NULL: nothing that was there was read again */
};

#define SERVE_WHY_DIFFERS "the text differs"
#define SERVE_WHY_STATES  "layers with a window or a state go back to ends of turns alone"
/* The likely cause why a text goes on with `is` where it went on with `was`. */
const char *serve_why_cause(const char *before, const char *was, const char *is);
/* Makes a text of these bytes that is UTF-8 and ends within its room. */
void serve_why_text(char to[SERVE_WHY_TEXT], const char *bytes, size_t n);
/* Keeps it as the newest of the last ten, and logs it in one line, without texts. */
void serve_why_add(const struct serve_why *x);
/* Writes the last ones as an array of JSON, newest first. Texts are shown to their owner alone. */
void serve_why_print(FILE *f, const struct serve_owner *owner);

#ifdef __cplusplus
}
#endif

#endif
