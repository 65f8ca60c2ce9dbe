/* SPDX-License-Identifier: MIT */
/* Texts from users: documents from files and standard input, questions and system messages from arguments. */
#ifndef WNW_APP_DOCUMENT_H
#define WNW_APP_DOCUMENT_H

#include "app/options.h"
#include "app/text.h"

enum { APP_MAX_DOCUMENTS = 1000 };

/* Reads documents and joins them with blank lines, so that each begins a new paragraph. The path "-" is standard input.
 * *text is NULL without documents; the caller frees it. Returns an exit code. */
int app_documents_read(char **text, size_t *len, const struct app_list *paths, struct app_text *remarks);

/* A copy of an argument, cleaned as above; *copy is NULL where there is none. The caller frees it. Returns an exit code. */
int app_argument_clean(char **copy, const char *text, const char *name, struct app_text *remarks);

#endif
