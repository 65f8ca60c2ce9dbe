/* SPDX-License-Identifier: MIT */
/* Slots without a request give up what they hold, where a batch needs its room. For the thread that decodes. */
#ifndef WNW_SERVE_GIVE_UP_H
#define WNW_SERVE_GIVE_UP_H

#include "serve/watched.h"

/* Removes what a slot holds that has no request and no row in a batch: the one that was unused for longest. Its conversation is parked. False:
 * there is none. */
bool serve_give_up_slot(struct serve_watched *w, const struct serve_batch *b);
/* The same of all slots of a set, a bit for each. */
void serve_give_up_slots(struct serve_watched *w, const struct serve_batch *b, uint64_t slots);

#endif
