/* SPDX-License-Identifier: MIT */
/* Where models lie and what they are called. */
#ifndef WNW_APP_MODELS_H
#define WNW_APP_MODELS_H

#include "app/text.h"
#include "winnow.h"
#include "winnow_tools.h"

/* The path of `tail` in the folder where models lie: $WINNOW_CACHE or ~/.cache/winnow. The caller frees
 * *path. */
int app_cache_path(char **path, const char *tail);
/* Whether the environment says where the cache folder is. */
bool app_cache_known(void);
/* Where model number i of app_model_names lies: *path, which the caller frees, and its size in bytes, -1 if it is not there. Returns an exit
 * code. */
int app_model_place(char **path, int64_t *bytes, int i);
/* Turns the -m argument into a path that can be opened. The caller frees *path. */
int app_model_path(char **path, const char *name);
/* What a model is called: the name of its file without folders and .gguf. The caller frees it; NULL = out of memory. */
char *app_model_short(const char *path);
/* wnw_file_fingerprint with the digests of the cache folder. Returns a wnw_status. */
int app_file_fingerprint(char out[WNW_FINGERPRINT_SIZE], const char *path);
/* wnw_model_open with the digests of the cache folder, whose warnings are added to notes, or printed where notes is NULL. Returns a wnw_status. */
int app_model_open(wnw_model **m, const char *path, const wnw_model_params *params, struct app_text *notes);

extern const char *const app_model_names[]; /* NULL-terminated, the default first */

#endif
