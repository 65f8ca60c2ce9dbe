/* SPDX-License-Identifier: MIT */
/* Where models lie and what they are called. */
#ifndef WNW_APP_MODELS_H
#define WNW_APP_MODELS_H

/* The path of `tail` in the folder where models lie: $WINNOW_CACHE or ~/.cache/winnow. The caller frees
 * *path. */
int app_cache_path(char **path, const char *tail);
/* Turns the -m argument into a path that can be opened. The caller frees *path. */
int app_model_path(char **path, const char *name);
extern const char *const app_model_names[]; /* NULL-terminated, the default first */

#endif
