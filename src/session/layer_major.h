/* SPDX-License-Identifier: MIT */
/* Reading a prompt layer by layer (phase LAYER). */
#ifndef WNW_LAYER_MAJOR_H
#define WNW_LAYER_MAJOR_H

#include "session/rules/rules.h"

/* Reads n checked tokens layer by layer; each layer is compressed as soon as all tokens have been through it.
 * Its times are added to those of the report, and kv_bytes_before becomes the most bytes that the cache had.
 * A failure before the first token leaves the session as it was, a later one leaves it empty. */
int wnw__read_layer_major(wnw_session *s, const int32_t *tokens, int32_t n, const struct wnw__goal *goal,
                          wnw_report *report);

#endif
