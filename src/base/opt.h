/* SPDX-License-Identifier: MIT */
/* Typed option tables: defaults, strict parsing and canonical text. */
#ifndef WNW_BASE_OPT_H
#define WNW_BASE_OPT_H

#include "base/err.h"
#include "winnow_method.h"

#include <stdio.h>

struct wnw_option; /* winnow_method.h */

/* The most options of one table: a parser marks those it has seen in the bits of one uint64_t. */
#define WNW_OPT_MAX 64

/* The most bytes of an option's value as text, with the 0 at its end. */
#define WNW_OPT_TEXT 1024

/* Checks that a table is well formed: names, ranges, and offsets inside an options struct of `size` bytes.
 * table may be NULL. */
int wnw__opt_check_table(const struct wnw_option *table, size_t size, const char *owner);

void wnw__opt_defaults(const struct wnw_option *table, void *opts);

/* Index of the option called name[len], or -1 if there is none. */
int wnw__opt_find(const struct wnw_option *table, const char *name, size_t len);

/* Stores text[len] as the value of one option. E_ARG names the owner, the option and what is allowed. */
int wnw__opt_parse(const struct wnw_option *o, void *opts, const char *owner, const char *text, size_t len);

/* Writes the value in the shortest form that reads back equal. */
void wnw__opt_format(const struct wnw_option *o, const void *opts, char *out, size_t size);

/* Whether the name matches [a-z0-9_-]+. */
bool wnw__name_ok(const char *name, size_t len);

#endif
