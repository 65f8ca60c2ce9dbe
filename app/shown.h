/* SPDX-License-Identifier: MIT */
/*
 * Prints text from models and files. A terminal obeys control characters: a text could set its title, its clipboard and the text on its
 * lines. So a terminal gets them as text, \x1b and \u009b. A pipe or a file gets the text unchanged.
 */
#ifndef WNW_APP_SHOWN_H
#define WNW_APP_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct app_shown {
    FILE *f;
    bool terminal; /* f is one */
    bool returned; /* a carriage return came last: a line feed after it belongs to the same line break */
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
