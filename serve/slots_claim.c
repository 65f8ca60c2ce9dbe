/* SPDX-License-Identifier: MIT */
/* Which slot a request gets, when, and whether it may begin with what is there. */
#include "serve/slots_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- Choosing ---- */

static size_t common_prefix(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

/* The free slot whose last prompt begins most alike, if that is a tenth of this one; else the one that was unused for longest. -1: none
 * is free. */
static int32_t choose(const struct serve_slots *all, const struct serve_ask *ask)
{
    int32_t best = -1, oldest = -1;
    size_t most = ask->key_len / 10;
    if (ask->slot >= 0)
        return all->slot[ask->slot].claimed ? -1 : ask->slot;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        if (s->claimed)
            continue;
        const size_t n = s->key ? common_prefix(ask->key, ask->key_len, s->key, s->key_len) : 0;
        if (n > most) {
            most = n;
            best = i;
        }
        if (oldest < 0 || s->used < all->slot[oldest].used)
            oldest = i;
    }
    return best >= 0 ? best : oldest;
}

/* Sets *slots to the chosen slot and the first free others, which are those that the server takes for further answers. */
static bool choose_all(const struct serve_slots *all, const struct serve_ask *ask, int32_t *slot,
                       uint64_t *slots)
{
    *slot = choose(all, ask);
    if (*slot < 0)
        return false;
    *slots = UINT64_C(1) << *slot;
    int32_t n = 1;
    for (int32_t i = 0; i < all->n_slots && n < ask->n_slots; i++)
        if (i != *slot && !all->slot[i].claimed) {
            *slots |= UINT64_C(1) << i;
            n++;
        }
    return n >= ask->n_slots;
}

/* Whether a prompt may begin with what a slot has kept of its last one. */
static bool may_reuse(const struct serve_slot *s, const struct serve_ask *ask)
{
    if (ask->reuse != SERVE_REUSE_SAME)
        return ask->reuse == SERVE_REUSE_ANY;
    if (s->behind != ask->behind)
        return false;
    if ((s->unnoted || !serve_same_recipe(&s->want, &ask->want)) && serve_looks_back(&ask->want))
        return false;
    if (!s->compressed)
        return true;
    if (!serve_same_want(&s->compressed_by, &ask->want) ||
        s->compressed_by.n_protected != ask->want.n_protected)
        return false;
    return !serve_looks_at_question(&ask->want) ||
           (s->key && common_prefix(ask->key, ask->key_len, s->key, s->key_len) == s->key_len);
}

/* ---- Claims ---- */

static void take(struct serve_slots *all, int32_t i, const struct serve_ask *ask, uint64_t reserved)
{
    struct serve_slot *s = &all->slot[i];
    char *key = malloc(ask->key_len + 1);
    free(s->key);
    s->key = key;
    s->key_len = key ? ask->key_len : 0;
    if (key && ask->key_len > 0)
        memcpy(key, ask->key, ask->key_len);
    s->claimed = s->fresh = true;
    s->used = ++all->clock;
    s->reserved = reserved;
    s->n_prompt = ask->n_prompt;
    s->n_answer = ask->n_predict * ask->n_slots;
    s->stores = ask->stores;
    s->want = ask->want;
}

static enum serve_answer try_claim(struct serve_slots *all, const struct serve_ask *ask,
                                   struct serve_claim *claim, bool *claimed, char *why)
{
    const enum serve_answer answer = serve_slots_check_cap(all, ask, why);
    *claimed = answer == SERVE_CLAIMED && choose_all(all, ask, &claim->slot, &claim->slots);
    if (!*claimed)
        return answer;
    const struct serve_slot *s = &all->slot[claim->slot];
    const bool reuses = may_reuse(s, ask);
    claim->no_reuse = ask->behind == 0 && !reuses;
    claim->puts = ask->behind > 0 && (s->behind != ask->behind || !reuses);
    for (int32_t i = 0; i < all->n_slots; i++)
        if (claim->slots >> i & 1)
            take(all, i, ask, i == claim->slot ? serve_slots_peak(all, ask) : 0);
    return SERVE_CLAIMED;
}

enum serve_answer serve_slots_claim(const struct serve_ask *ask, struct serve_claim *claim, char *why)
{
    bool claimed = false;
    struct serve_slots *all = serve_slots_lock();
    enum serve_answer answer = serve_slots_check_cap(all, ask, why);
    const bool waits = answer == SERVE_CLAIMED;
    const uint64_t ticket = all->next_ticket;
    all->next_ticket += waits;
    while (answer == SERVE_CLAIMED && !claimed) {
        if (all->turn == ticket)
            answer = try_claim(all, ask, claim, &claimed, why);
        if (claimed || answer != SERVE_CLAIMED)
            break;
        serve_slots_wait();
        /* A client that leaves lets go of its turn when that has come. */
        if (all->turn == ticket && ask->gone && ask->gone(ask->user))
            answer = SERVE_GONE;
    }
    if (waits) { /* it was its turn, or it would wait still */
        all->turn++;
        serve_slots_wake();
    }
    serve_slots_unlock();
    return answer;
}

void serve_slots_release(const struct serve_claim *claim)
{
    struct serve_slots *all = serve_slots_lock();
    for (int32_t i = 0; i < all->n_slots; i++)
        if (claim->slots >> i & 1)
            all->slot[i].claimed = false;
    serve_slots_wake();
    serve_slots_unlock();
}

bool serve_slots_is_claimed(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const bool claimed = all->slot[slot].claimed;
    serve_slots_unlock();
    return claimed;
}
