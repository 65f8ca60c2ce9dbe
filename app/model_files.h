/* SPDX-License-Identifier: MIT */
/* The files of a model that another process opens after this one took its fingerprint: a note of their state, and checks against it. */
#ifndef WNW_APP_MODEL_FILES_H
#define WNW_APP_MODEL_FILES_H

#include "app/text.h"

struct app_model_files;

/* Adds a line for each file of the model at `path`: what the file system says of it, and its path. Returns an exit code. */
int app_model_files_note(struct app_text *note, const char *path);
/* Opens the files of such a note. NULL: one of them is another file now, cannot be opened, or the note is none. They stay open until the
 * process ends. */
struct app_model_files *app_model_files_open(const char *note);
/* Whether their paths still name them. */
bool app_model_files_named(const struct app_model_files *f);
/* Whether nobody wrote to them since the note. */
bool app_model_files_kept(const struct app_model_files *f);
void app_model_files_close(struct app_model_files *f);

#endif
