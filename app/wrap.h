/* SPDX-License-Identifier: MIT */
/* Text that is broken between words, for help texts. */
#ifndef WNW_APP_WRAP_H
#define WNW_APP_WRAP_H

#include <stdio.h>

/* Columns that a help text may use: the width of the terminal f, clamped to 40 to 100; 80 if f is no terminal. */
int app_wrap_columns(FILE *f);

/* Writes text and a line break, with line breaks between words so that no line has more than `width` bytes. Further lines begin with
 * `indent` blanks; `at` is the column where the first line begins. A word that is longer than a line is not cut. One line break in
 * the text counts as a blank, two are a line break. */
void app_wrap(FILE *f, const char *text, int at, int indent, int width);

#endif
