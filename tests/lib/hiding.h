/* SPDX-License-Identifier: MIT */
/*
 * The oracle of compaction: a session with ggml's attention that keeps its full cache and does not see some of
 * its entries. Programs that use it are linked with -Wl,--wrap=ggml_flash_attn_ext: where the library asks ggml for
 * the attention of such a session, its masks are closed for the hidden entries on the way.
 */
#ifndef WNW_TESTS_HIDING_H
#define WNW_TESTS_HIDING_H

#include "winnow.h"
#include "winnow_method.h"

/* Hides from all later passes of s every present entry that the plan, made for such a session, drops; layers with a
 * sliding window see all, as they are never compacted. One session at a time has hidden entries: those of an earlier
 * call are seen again. test_hide_end must come before s is freed. */
void test_hide_dropped(const wnw_session *s, const wnw_plan *plan);
void test_hide_end(void);

#endif
