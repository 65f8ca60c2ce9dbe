/* SPDX-License-Identifier: MIT */
/* Finding and reading calibration results. */
#ifndef WNW_APP_PROFILES_H
#define WNW_APP_PROFILES_H

#include "app/output.h"
#include "app/text.h"
#include "winnow_tools.h"

/* The folder of the cache folder in which profiles of a model are looked for, whether it exists or not. The
 * caller frees *folder. Returns an exit code. */
int app_profile_folder(char **folder, const char *model_path);

struct app_profile_want {
    const char *given;           /* argument of --profile: a file or a folder; NULL = none */
    const char *model;           /* argument of -m, for messages */
    const char *model_path;      /* its name without .gguf is that of the model's folder */
    uint32_t required, optional; /* bit sets of wnw_profile_kind */
    double budget;             /* entries per head, which chooses among CompilerKV's tables; 0 = not known */
    const char *user;          /* what needs them, for messages: "policy compresskv" */
    struct app_inputs *inputs; /* the files that were read are added */
};
/* Finds the file that would be read for a kind; *path is NULL if there is none, else the caller frees it. Of
 * `want` only given (a folder), model_path and budget are looked at. Returns an exit code. */
int app_profile_find(char **path, const struct app_profile_want *want, int32_t kind);
/* A model's file, and its fingerprint, which is "" until a profile is compared with it. */
struct app_profile_model {
    const char *path;
    char fingerprint[WNW_FINGERPRINT_SIZE];
};
/* The same for a file that belongs to the model; given: a folder, or NULL. Files of other models are passed over, with a
 * warning. */
int app_profile_find_own(char **path, const char *given, struct app_profile_model *m, int32_t kind);
/* Adds a model's profiles to a list with ':' between them, as WINNOW_PROFILE is one, but for CompilerKV's tables, which belong to a
 * budget. Files of other models are passed over, with a warning. Returns an exit code. */
int app_profile_list(struct app_text *list, const char *model_path);
/* Refuses a list in which a file belongs to another model. What cannot be read is refused where it is used. CompilerKV's tables
 * may be of any model. Returns an exit code. */
int app_profile_list_check(const char *list, const char *model_path);
/* Finds and reads the profiles that are wanted and prints its own message about those that are missing. The
 * caller frees *out, which is NULL if none is wanted, or none that need not be there is found. Remarks on what was read are added to notes, one per
 * line. */
int app_profile_load(wnw_profile **out, struct app_text *notes, const wnw_model *m,
                     const struct app_profile_want *want);

#endif
