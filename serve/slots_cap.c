/* SPDX-License-Identifier: MIT */
/* The cap on keys and values over all slots: counted before anything is read. */
#include "serve/documents.h"
#include "serve/slots_impl.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t serve_slots_peak(const struct serve_slots *all, const struct serve_ask *ask)
{
    const uint64_t queries = serve_looks_with_all(&ask->want) ? all->query_bytes : 0;
    return (uint64_t)ask->n_prompt * queries +
           (uint64_t)(ask->n_prompt + ask->n_predict * ask->n_slots) * all->row_bytes;
}

/* Documents stay as long as the server runs. */
static uint64_t documents_take(const struct serve_slots *all)
{
    return all->row_entries > 0
               ? (uint64_t)serve_documents_entries() * all->row_bytes / (uint64_t)all->row_entries
               : 0;
}

/* What no request can have: windows fill up with the first long prompt, and stay full. */
static uint64_t always_taken(const struct serve_slots *all)
{
    return documents_take(all) + all->window_bytes;
}

static uint64_t all_reserved(const struct serve_slots *all)
{
    uint64_t bytes = always_taken(all);
    for (int32_t i = 0; i < all->n_slots; i++)
        bytes += all->slot[i].claimed ? all->slot[i].reserved : 0;
    return bytes;
}

enum serve_answer serve_slots_check_cap(struct serve_slots *all, const struct serve_ask *ask, char *why)
{
    const uint64_t cap = serve_settings()->cap, peak = serve_slots_peak(all, ask), taken = all_reserved(all);
    const uint64_t always = always_taken(all);
    if (cap == 0 || ask->visits)
        return SERVE_CLAIMED;
    if (peak > cap - (always < cap ? always : cap)) {
        const int n = snprintf(why, SERVE_TEXT,
                               "a prompt of %" PRId64 " tokens with %" PRId64 " to answer takes %" PRIu64
                               " bytes while it is read, and this server may hold %" PRIu64
                               ", of which its documents take %" PRIu64,
                               ask->n_prompt, ask->n_predict, peak, cap, documents_take(all));
        if (all->window_bytes > 0)
            snprintf(why + n, SERVE_TEXT - (size_t)n, " and sliding windows %" PRIu64, all->window_bytes);
        return SERVE_TOO_LONG;
    }
    if (taken + peak > cap) {
        snprintf(why, SERVE_TEXT,
                 "other requests leave no room now: %" PRIu64 " bytes are wanted, %" PRIu64 " of %" PRIu64
                 " are free",
                 peak, cap - (taken < cap ? taken : cap), cap);
        all->n_refused++;
        return SERVE_BUSY;
    }
    return SERVE_CLAIMED;
}
