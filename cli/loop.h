/* SPDX-License-Identifier: MIT */
/* Noticing that an answer repeats itself without an end, as small models do. */
#ifndef WNW_CLI_LOOP_H
#define WNW_CLI_LOOP_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of an answer that are looked at, and bytes that one repeated piece may have. */
enum { CLI_LOOP_BYTES = 4096, CLI_LOOP_PIECE = 1024 };

/* The end of an answer. Starts as {0}. */
struct cli_loop {
    char text[CLI_LOOP_BYTES];
    size_t n;
};

/* Adds text. True: the answer now ends with one piece at least CLI_LOOP_TIMES times, and these are at least CLI_LOOP_LEAST bytes. */
bool cli_loop_add(struct cli_loop *l, const char *text, size_t n);

/* A table's ruler or a short list of equal numbers is no loop. */
enum { CLI_LOOP_TIMES = 4, CLI_LOOP_LEAST = 320 };

#endif
