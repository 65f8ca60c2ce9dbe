/* SPDX-License-Identifier: MIT */
/* Whether entries can have new positions. */
#ifndef WNW_RENUMBER_H
#define WNW_RENUMBER_H

#include "winnow.h"

/* E_UNSUPPORTED where this session's entries cannot get new positions, whatever is kept. */
int wnw__renumber_check(const wnw_session *s);
/* E_UNSUPPORTED unless n = n_first. */
int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first);

#endif
