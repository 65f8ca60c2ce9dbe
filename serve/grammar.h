/* SPDX-License-Identifier: MIT */
/*
 * Bounds on grammars in GBNF, before llama.cpp reads them. Its reader calls itself for each group, its sampler walks through all ways into a
 * grammar, and a literal that is repeated is copied: a few bytes could end the server, or stop it for everybody.
 */
#ifndef WNW_SERVE_GRAMMAR_H
#define WNW_SERVE_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SERVE_GRAMMAR_BYTES = 1 << 20,
    SERVE_GRAMMAR_DEPTH = 128,        /* groups in each other */
    SERVE_GRAMMAR_REPEATS = 2000,     /* of one item, the most that llama.cpp counts */
    SERVE_GRAMMAR_RULES = 20000,      /* and groups */
    SERVE_GRAMMAR_MADE = 50000,       /* rules that llama.cpp makes of repetitions */
    SERVE_GRAMMAR_ELEMENTS = 2000000, /* with what is repeated */
    SERVE_GRAMMAR_CHOICES = 4096      /* ways to go on from one place */
};

/* Whether a grammar is within the bounds. False: why[SERVE_TEXT] says which one it breaks, or where it is no grammar. */
bool serve_grammar_check(const char *text, char *why);

#ifdef __cplusplus
}
#endif

#endif
