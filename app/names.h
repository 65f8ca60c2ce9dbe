/* SPDX-License-Identifier: MIT */
/* Bit sets of the library in words. */
#ifndef WNW_APP_NAMES_H
#define WNW_APP_NAMES_H

#include "winnow.h"

#include <stddef.h>
#include <stdint.h>

/* Write names to out and return out: needs as "window attention, keys" or "nothing", phases as "end,
 * layer". */
const char *app_needs_text(uint32_t needs, char *out, size_t size);
const char *app_phases_text(uint32_t phases, char *out, size_t size);
/* The recipe of a policy in its shortest form, for headings and remarks; the long form if memory runs out.
 * The caller releases *own, which may be NULL, with wnw_free. */
const char *app_policy_text(const wnw_policy *policy, char **own);

#endif
