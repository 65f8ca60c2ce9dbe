/* SPDX-License-Identifier: MIT */
/* The file of a document: a text in UTF-8, or a stored cache (winnow_store.h). */
#ifndef WNW_SERVE_DOCUMENT_FILE_H
#define WNW_SERVE_DOCUMENT_FILE_H

#include "serve/keep_rule.h"
#include "winnow_store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct serve_document_file {
    char *text, *system;       /* owned; system: that it was stored with, NULL = none */
    wnw_stored *stored;        /* owned; NULL: a text */
    struct serve_keep_rule by; /* by what it was compressed before it was stored */
};

/* Reads it. False: `what`, bytes[SERVE_TEXT], says what is wrong; *f is to be freed all the same. fingerprint: of the server's model, ""
 * where nobody has said it. */
bool serve_document_file_read(struct serve_document_file *f, const char *path, const char *fingerprint,
                              char *what);
void serve_document_file_free(struct serve_document_file *f);

#ifdef __cplusplus
}
#endif

#endif
