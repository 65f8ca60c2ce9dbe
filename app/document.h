/* SPDX-License-Identifier: MIT */
/* Texts from users: documents from files and standard input, questions and system messages from arguments. */
#ifndef WNW_APP_DOCUMENT_H
#define WNW_APP_DOCUMENT_H

#include "app/options.h"
#include "app/text.h"

enum { APP_MAX_DOCUMENTS = 1000 };

/* Makes text that came from `name` fit for a tokenizer. A UTF-8 byte order mark is removed; text in UTF-16 and NUL bytes are
 * refused; sequences that are not UTF-8 become U+FFFD, with one remark that counts them and says where the first is.
 * Returns an exit code. */
int app_text_clean(struct app_text *t, const char *name, struct app_text *remarks);
/* The same without a message: *fault is NULL, or says what is wrong, and is the caller's to free (NULL with APP_FAILED: out of memory). */
int app_text_mend(struct app_text *t, const char *name, struct app_text *remarks, char **fault);

/* Reads documents and joins them with blank lines, so that each begins a new paragraph. The path "-" is standard input.
 * *text is NULL without documents; the caller frees it. Returns an exit code. */
int app_documents_read(char **text, size_t *len, const struct app_list *paths, struct app_text *remarks);

/* A copy of an argument, cleaned as above; *copy is NULL where there is none. The caller frees it. Returns an exit code. */
int app_argument_clean(char **copy, const char *text, const char *name, struct app_text *remarks);

#endif
