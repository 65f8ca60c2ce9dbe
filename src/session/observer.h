/* SPDX-License-Identifier: MIT */
/* How the driver sees a session: its cache, what was recorded, and the results of a second pass. */
#ifndef WNW_OBSERVER_H
#define WNW_OBSERVER_H

#include "plan/compress.h"

struct wnw__observer;
int wnw__observer_new(struct wnw__observer **out, wnw_session *s);
void wnw__observer_free(struct wnw__observer *ob);
/* A source of observations of the session's present cache. Borrowed from the observer. */
const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob);

#endif
