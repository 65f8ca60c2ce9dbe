/* SPDX-License-Identifier: MIT */
/*
 * The server would clear slots by itself where a batch finds no room. It may take one that a request has claimed, whose task has not begun. The
 * request would then read all of its prompt, but only the end of it was counted. So slots are chosen here, under the lock of claims.
 */
#include "serve/give_up.h"

#include "serve/borders.h"
#include "serve/compress.h"
#include "serve/join_room.h"
#include "serve/slot_save.h"

static uint64_t with_rows(const struct serve_watched *w, const struct serve_batch *b)
{
    uint64_t bits = 0;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        bits |= serve_batch_rows_of(b, seq).n > 0 ? UINT64_C(1) << seq : 0;
    return bits;
}

/* Gives up the slot that was unused for longest, but for some, a bit for each. False: there is none. */
static bool give_up(struct serve_watched *w, uint64_t but)
{
    struct serve_park_about about;
    bool parks;
    const int32_t seq = serve_slots_give_up(but, &about, &parks);
    if (seq < 0)
        return false;
    if (parks && serve_settings()->park_ratio > 0.0)
        serve_compress_parked(w, seq);
    if (parks)
        serve_saved_park_slot(w, seq, &about);
    if (!serve_join_clear(w, seq))
        return false;
    serve_borders_cut(w, seq, 0);
    serve_watched_report(w, seq);
    serve_watched_tell(w, false, false);
    return true;
}

bool serve_give_up_slot(struct serve_watched *w, const struct serve_batch *b)
{
    return give_up(w, with_rows(w, b));
}

void serve_give_up_slots(struct serve_watched *w, const struct serve_batch *b, uint64_t slots)
{
    while (give_up(w, ~slots | with_rows(w, b)))
        continue;
}
