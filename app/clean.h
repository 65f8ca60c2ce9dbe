/* SPDX-License-Identifier: MIT */
/* Bytes of users as text in UTF-8. */
#ifndef WNW_APP_CLEAN_H
#define WNW_APP_CLEAN_H

#include "app/text.h"

/* Makes text that came from `name` fit for a tokenizer. A UTF-8 byte order mark is removed; text in UTF-16 and NUL bytes are
 * refused; sequences that are not UTF-8 become U+FFFD, with one remark that counts them and says where the first is.
 * Returns an exit code. */
int app_text_clean(struct app_text *t, const char *name, struct app_text *remarks);
/* The same without a message: *fault is NULL, or says what is wrong, and is the caller's to free (NULL with APP_FAILED: out of memory). */
int app_text_mend(struct app_text *t, const char *name, struct app_text *remarks, char **fault);

#endif
