/* SPDX-License-Identifier: MIT */
/* Where models lie and what they are called. */
#ifndef WNW_APP_MODELS_H
#define WNW_APP_MODELS_H

/* Where models lie: $WINNOW_CACHE or ~/.cache/winnow. *path is owned: free. */
int app_cache_path(char **path, const char *tail);
/* Turns the -m argument into a path that can be opened. *path is owned: free. */
int app_model_path(char **path, const char *name);
extern const char *const app_model_names[]; /* NULL-terminated, the default first */

#endif
