/* SPDX-License-Identifier: MIT */
/* The driver's view of a session: its cache, the recorded numbers and the results of a second pass. */
#ifndef WNW_OBSERVER_H
#define WNW_OBSERVER_H

#include "plan/compress.h"

struct wnw__observer;
/* The observer borrows s and looks at it on the thread that s belongs to. */
int wnw__observer_new(struct wnw__observer **out, wnw_session *s);
void wnw__observer_free(struct wnw__observer *ob);
/* A source of observations of the session's present cache, borrowed from the observer. */
const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob);

#endif
