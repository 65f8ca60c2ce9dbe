/* SPDX-License-Identifier: MIT */
/*
 * The recipe "auto", or "auto+quality:q=Q": what a prompt is compressed by is chosen when it was read (wnw_automatic_choose). So all that may
 * be chosen is observed while it is read.
 */
#ifndef WNW_SERVE_AUTOMATIC_H
#define WNW_SERVE_AUTOMATIC_H

#include "serve/want.h"

#ifdef __cplusplus
extern "C" {
#endif

bool serve_is_automatic(const struct serve_want *want);
/* Whether that asks for a quality. */
bool serve_asks_quality(const struct serve_want *want);
/* What it is chosen by, with the server's profiles, of prompts of which a sample was fed again (serve/sample.h), or none was. */
wnw_automatic serve_automatic_of(const struct serve_want *want, bool fed);
/* Notes what all these recipes need, of both,, in a want that is automatic; to be called once its size is known, and again with a better n_most.
 * Returns a wnw_status: a quality that cannot be kept with the profiles that there are is refused. */
int serve_automatic_settle(struct serve_want *want);

#ifdef __cplusplus
}
#endif

#endif
