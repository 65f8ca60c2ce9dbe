/* SPDX-License-Identifier: MIT */
/* The words by which KVzip's programs (arXiv 2505.23416) ask a model to repeat, and how much of what comes before a part leads to it. */
#ifndef WNW_REPEAT_H
#define WNW_REPEAT_H

#include <stdbool.h>

/* Last tokens of what precedes a part of a text, which the words end with. */
enum { WNW_REPEAT_HINT = 8 };

/* inside: for a part that does not begin where the text does, and whose hint follows. Static. */
const char *wnw__repeat_words(bool inside);

#endif
