/* SPDX-License-Identifier: MIT */
/*
 * Text from models and files on its way to a terminal. A terminal obeys control characters: a text could set its title, its clipboard and
 * what stands on its lines. There they are written as text, \x1b and \u009b; into a pipe or a file the text goes as it is.
 */
#ifndef WNW_APP_SHOWN_H
#define WNW_APP_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct app_shown {
    FILE *f;
    bool terminal; /* f is one */
    bool returned; /* a carriage return came last: with a line break behind it, it is one */
    char begun[4]; /* [n_begun] the beginning of a character that the next piece may complete */
    size_t n_begun;
};
/* Begins a text. Line breaks, tabs and all of UTF-8 stay; control characters, those that turn the direction of writing (U+202A to U+202E,
 * U+2066 to U+2069) and bytes that are not UTF-8 are written as text if f is a terminal. */
void app_shown_begin(struct app_shown *s, FILE *f);
/* Writes the next piece. False: it could not be written, errno says why. */
bool app_shown_write(struct app_shown *s, const char *text, size_t n);
/* Writes what is still held back. False likewise. */
bool app_shown_end(struct app_shown *s);

#endif
