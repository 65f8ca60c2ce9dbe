/* SPDX-License-Identifier: MIT */
/* Stems of English words. */
#ifndef WNW_EVAL_PORTER_H
#define WNW_EVAL_PORTER_H

#include "eval/base/chars.h"

/* Porter's stemmer with the changes of NLTK, which the package rouge-score uses: makes a word, of lower-case
 * letters and digits, its stem, which is no longer. */
void eval_porter_stem(struct eval_chars *word);

#endif
