/* SPDX-License-Identifier: MIT */
/*
 * What libllama's pre-tokenizers ask of the machine. They cut a text into words before byte pairs are merged.
 * Some are written out in libllama; the others run on std::regex, which calls itself for every character of a match.
 * For some of those, time grows with the square of a run of characters. A long run is counted here before libllama
 * sees it (decision 044).
 */
#ifndef WNW_PRETOKENIZER_H
#define WNW_PRETOKENIZER_H

#include "base/err.h"

enum wnw__slow { WNW_SLOW_NOTHING, WNW_SLOW_BLANKS, WNW_SLOW_DIGITS };

struct wnw__pretokenizer {
    char name[64];
    bool recurses;       /* its matches take stack by the character */
    bool across_blanks;  /* its matches go on after a blank */
    enum wnw__slow slow; /* it takes time by the square of runs of these */
};

/* `name` is the file's tokenizer.ggml.pre, or NULL where it has none. */
struct wnw__pretokenizer wnw__pretokenizer_named(const char *name);

/* The bytes of stack that text[n] needs: 0 where it is so little that any thread has it. Errors: E_RANGE (a run that takes
 * more stack than WNW_PRETOKENIZER_LONGEST characters do, or too much time; the sentence has its place). */
int wnw__pretokenizer_stack(size_t *bytes, const struct wnw__pretokenizer *p, const char *text, size_t n);

enum { WNW_PRETOKENIZER_LONGEST = 1 << 20 };

#endif
