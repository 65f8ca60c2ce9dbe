/* SPDX-License-Identifier: MIT */
/* Compressing what a slot has read, by what holds for it. */
#ifndef WNW_SERVE_COMPRESS_H
#define WNW_SERVE_COMPRESS_H

#include "serve/watched.h"

/* New tokens of a prompt that make a slot be compressed. */
enum { SERVE_LEAST_NEW = 128 };

/* The rule for a slot whose recipe is chosen, of n tokens that are not a document's, of which a sample was fed again or none. Returns a
 * wnw_status; out->policy is the caller's. */
int serve_choose_rule(struct serve_rule *out, const struct serve_watched *w, int32_t seq, int32_t n,
                      bool fed);
/* First tokens of a slot that stay whole: what its rule protects, and its document. */
int32_t serve_compress_header(const struct serve_watched *w, int32_t seq);
/* Compresses a slot whose prompt has ended, if it is time. False: it could not be; the reason was said. */
bool serve_compress(struct serve_watched *w, int32_t seq);

#endif
