/* SPDX-License-Identifier: MIT */
/* Which part of a timeline is compressed next, and to what (winnow_tools.h): what only the library asks. */
#ifndef WNW_TURNS_H
#define WNW_TURNS_H

#include "winnow_tools.h"

/* The size of what follows the header, which `size` and the other fields come down to. */
wnw_size wnw__turns_size(const wnw_turns *t);

#endif
