/* SPDX-License-Identifier: MIT */
/* The documents of `winnow serve`: what can be said of them before the server starts. */
#ifndef WNW_CLI_SERVE_DOCUMENTS_H
#define WNW_CLI_SERVE_DOCUMENTS_H

#include "app/options.h"
#include "app/text.h"
#include "winnow.h"
#include "winnow_tools.h"

/* Refuses what is not NAME=FILE, with a file that can be read. Returns an exit code. */
int cli_serve_documents_check(const struct app_list *documents);
/* Refuses stored documents that are damaged or of another model, and says the model's fingerprint, to which the server holds
 * them and slots in files; it stays as it is where no document is stored and `wanted` is false. With it comes a note of the
 * model's files (app/model_files.h). *stored: whether a document is. Returns an exit code. */
int cli_serve_documents_fit(char fingerprint[WNW_FINGERPRINT_SIZE], struct app_text *files,
                            const struct app_list *documents, const char *model, bool wanted, bool *stored);

#endif
