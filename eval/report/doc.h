/* SPDX-License-Identifier: MIT */
/* A document that is written piece by piece: plain text, CSV or a page. */
#ifndef WNW_EVAL_DOC_H
#define WNW_EVAL_DOC_H

#include "app/output.h"
#include "app/text.h"

#include <stdbool.h>
#include <stddef.h>

struct eval_doc {
    struct app_text text;
    bool no_memory; /* memory ran out: the document is incomplete and must not be used */
};

/* All functions below set no_memory if memory runs out, so that a writer checks once, at its end. */

void eval_doc_clear(struct eval_doc *d);
/* Adds formatted text as it is. */
void eval_doc_put(struct eval_doc *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a field of a CSV line, in quotation marks where it needs them. */
void eval_doc_csv(struct eval_doc *d, const char *s);

/* Hides the control characters of what runs have named themselves, for terminals that would obey them; lines stay. */
void eval_doc_hide_controls(struct eval_doc *d);

/* Writes the document to a file that appears whole. inputs: files it must not replace; NULL = none. Returns an exit
 * code. */
int eval_doc_write(const struct eval_doc *d, const char *path, const struct app_inputs *inputs);

/* A number in text: "-" for NaN, and never a 0 with a sign. Returns out. */
enum { EVAL_MAX_NUMBER = 40 };
const char *eval_format(char out[EVAL_MAX_NUMBER], double value, int decimals);
/* A difference: with its sign. */
const char *eval_format_signed(char out[EVAL_MAX_NUMBER], double value, int decimals);

#endif
