/* SPDX-License-Identifier: MIT */
/* Checks whether a session's entries can get new positions. */
#ifndef WNW_RENUMBER_H
#define WNW_RENUMBER_H

#include "winnow.h"

/* E_UNSUPPORTED where this session's entries cannot get new positions, whatever is kept. */
int wnw__renumber_check(const wnw_session *s);
/* E_UNSUPPORTED unless layer il, KV head ih has n = n_first entries, as many as the first head: new positions
 * need equal counts. */
int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first);

#endif
