/* SPDX-License-Identifier: MIT */
/* Files of keep-plans, as `winnow plan` writes them. */
#ifndef WNW_APP_PLAN_FILE_H
#define WNW_APP_PLAN_FILE_H

#include "winnow_method.h"

#include <jansson.h>

/* Reads a plan and checks it. Returns an exit code. *o, which may be set after an error too, is the caller's. */
int app_plan_read(json_t **o, const char *path);
/* Makes the plan of what app_plan_read has checked. Returns an exit code: bad input where the file has more than positions. */
int app_plan_make(wnw_plan **out, const json_t *o, const char *path);

#endif
