/* SPDX-License-Identifier: MIT */
/* Stems of English words. */
#ifndef WNW_EVAL_PORTER_H
#define WNW_EVAL_PORTER_H

#include <stddef.h>
#include <stdint.h>

/* Porter's stemmer with the changes of NLTK, which the package rouge-score uses: makes word[n], of lower-case
 * letters and digits, its stem. Returns the stem's length, which is at most n. */
size_t eval_porter_stem(uint32_t *word, size_t n);

#endif
