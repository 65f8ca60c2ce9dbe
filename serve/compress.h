/* SPDX-License-Identifier: MIT */
/* Compressing what a slot has read, by what holds for it. */
#ifndef WNW_SERVE_COMPRESS_H
#define WNW_SERVE_COMPRESS_H

#include "serve/watched.h"
#include "winnow_tools.h"

/* ---- rule.c ---- */

/* Chooses the rule for a slot whose policy is "auto". n: its tokens without those of a document; fed: whether a sample of them was fed
 * again. Returns a wnw_status; the caller owns out->policy. */
int serve_choose_rule(struct serve_rule *out, const struct serve_watched *w, int32_t seq, int32_t n,
                      bool fed);
/* First tokens of a slot that stay whole: what its rule protects, and its document. */
int32_t serve_compress_header(const struct serve_watched *w, int32_t seq);
/* What the slot has read. The caller sets what the rule says. */
wnw_turns serve_compress_turns(const struct serve_watched *w, int32_t seq);

/* ---- compress.c ---- */

/* Compresses a slot whose prompt has ended, if it is time. False: it could not be; the reason was said. */
bool serve_compress(struct serve_watched *w, int32_t seq);
/* Compresses a whole slot that is about to be parked, and then to be used for something else, by --park-ratio. */
void serve_compress_parked(struct serve_watched *w, int32_t seq);

/* Compresses some tokens of a slot further, to n entries a head, by the fallback policy: wnw_last_error() says why not. */
bool serve_compress_middle(struct serve_watched *w, int32_t seq, int32_t from, int32_t to, int32_t n);

#endif
