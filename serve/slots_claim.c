/* SPDX-License-Identifier: MIT */
/* Which slot a request gets, when, and whether it may begin with what is there. */
#include "base/prefix.h"
#include "serve/documents.h"
#include "serve/parks.h"
#include "serve/slots_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- Choosing ---- */

/* A request that wants several slots is overtaken so often at most. Then it comes first, since it might never find them free together. */
enum { MOST_OVERTAKEN = 256 };

static int32_t n_bits(uint64_t bits)
{
    int32_t n = 0;
    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

/* The slots that a waiting request keeps from later ones, a bit for each. A request that names a slot keeps that slot. A request that
 * wants several, while some are taken, does not hold up those that want fewer. */
static uint64_t kept_by(const struct serve_waiter *w, uint64_t free_slots)
{
    const struct serve_ask *ask = w->ask;
    const uint64_t named = ask->slot >= 0 ? UINT64_C(1) << ask->slot : 0;
    if (ask->n_slots <= 1)
        return named ? named : ~UINT64_C(0);
    if (named && !(named & free_slots))
        return named;
    return n_bits(free_slots) >= ask->n_slots || w->n_overtaken >= MOST_OVERTAKEN ? ~UINT64_C(0) : named;
}

/* The slots that a request may have: free ones that none before it waits for. */
static uint64_t free_for(const struct serve_slots *all, const struct serve_waiter *self)
{
    uint64_t bits = 0;
    for (int32_t i = 0; i < all->n_slots; i++)
        bits |= all->slot[i].claimed ? 0 : UINT64_C(1) << i;
    for (const struct serve_waiter *w = all->waiting; w != self; w = w->next)
        bits &= ~kept_by(w, bits);
    return bits;
}

/* Whether a prompt that shares n bytes with a slot's goes on with its conversation. What is longer than the context is not given up for its
 * header, which takes up to a quarter of the context. */
static bool goes_on(const struct serve_slot *s, size_t n)
{
    return s->n_removed == 0 || n > s->key_len / 4;
}

/* Whether nobody goes on with what a slot holds: nothing, or a document as it was read for all, which is kept by itself. */
static bool is_spare(const struct serve_slot *s)
{
    return s->n_tokens == 0 || s->stores > 0;
}

/* The order in which slots are given to other prompts: spare ones first, then those that were unused for longest. */
static bool goes_before(const struct serve_slot *a, const struct serve_slot *b)
{
    return is_spare(a) != is_spare(b) ? is_spare(a) : a->used < b->used;
}

/* The slot whose last prompt shares the longest beginning with this one. The beginning must be a tenth of this prompt, and no shorter than a
 * parked one. Otherwise the slot that is given away first. -1: there is none. */
static int32_t choose(const struct serve_slots *all, const struct serve_ask *ask, uint64_t from,
                      size_t n_parked)
{
    int32_t best = -1, first = -1;
    size_t most = ask->key_len / 10;
    if (ask->slot >= 0)
        return from >> ask->slot & 1 ? ask->slot : -1;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        if (!(from >> i & 1))
            continue;
        const size_t n = s->key ? wnw__common_bytes(ask->key, ask->key_len, s->key, s->key_len) : 0;
        if (n >= n_parked && goes_on(s, n) &&
            (n > most || (n == most && best >= 0 && s->used < all->slot[best].used))) {
            most = n;
            best = i;
        }
        if (first < 0 || goes_before(s, &all->slot[first]))
            first = i;
    }
    return best >= 0 ? best : first;
}

/* Sets *slots to the chosen slot and the first free others, which are those that the server takes for further answers. */
static bool choose_all(const struct serve_slots *all, const struct serve_waiter *self, size_t n_parked,
                       int32_t *slot, uint64_t *slots)
{
    const uint64_t from = free_for(all, self);
    *slot = choose(all, self->ask, from, n_parked);
    if (*slot < 0)
        return false;
    *slots = UINT64_C(1) << *slot;
    int32_t n = 1;
    for (int32_t i = 0; i < all->n_slots && n < self->ask->n_slots; i++)
        if (i != *slot && from >> i & 1) {
            *slots |= UINT64_C(1) << i;
            n++;
        }
    return n >= self->ask->n_slots;
}

/* Whether the server knows nothing yet of a claim: it takes the slot for a free one. */
static bool is_to_begin(const struct serve_slot *s)
{
    return s->claimed && s->n_together > 0 && (s->visited || s->fresh);
}

/* For further answers the server takes slots that it finds free, which may be claimed by requests that have not begun. These would read again what
 * their slots held, and a cap does not count that. So a request of several answers and any other do not begin at the same time. */
static bool may_begin(const struct serve_slots *all, const struct serve_ask *ask)
{
    if (serve_settings()->cap == 0)
        return true;
    for (int32_t i = 0; i < all->n_slots; i++)
        if (is_to_begin(&all->slot[i]) && (ask->n_slots > 1 || all->slot[i].n_together > 1))
            return false;
    return true;
}

/* Whether a prompt may begin with what a slot has kept of its last one. */
static bool may_reuse(const struct serve_slot *s, const struct serve_ask *ask)
{
    return serve_may_reuse(&(struct serve_prefix){.key = s->key,
                                                  .key_len = s->key_len,
                                                  .keep_rule = &s->keep_rule,
                                                  .compressed_by = s->compressed ? &s->compressed_by : NULL,
                                                  .unnoted = s->unnoted,
                                                  .of_list = s->of_list,
                                                  .document_plus_1 = s->document_plus_1},
                           ask);
}

/* The slot that holds something, serves nobody and was unused for longest, none of the bits `but`; -1: there is none. */
static int32_t oldest_idle(const struct serve_slots *all, uint64_t but)
{
    int32_t oldest = -1;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        if (!s->claimed && s->n_tokens > 0 && !(but >> i & 1) &&
            (oldest < 0 || s->used < all->slot[oldest].used))
            oldest = i;
    }
    return oldest;
}

/* ---- What a slot is taken from ---- */

/* Tokens that are worth parking, and bytes of a prompt that are worth it where the rest of it is used. */
enum { LEAST_PARKED = 32, LEAST_LOST = 256 };

/* Whether a slot loses a conversation by a request that uses the first n_used bytes of its prompt. A document is in the cache anyway, and half
 * a prompt is of no use. */
static bool loses(const struct serve_slots *all, const struct serve_slot *s, size_t n_used)
{
    const size_t n_lost = s->key_len - n_used;
    if (!s->key || s->document_plus_1 > 0 || s->of_list || s->reading ||
        (all->by_request && s->n_tokens < LEAST_PARKED))
        return false;
    return n_lost > LEAST_LOST || n_lost > s->key_len / 2;
}

static void take_about(struct serve_park_about *about, struct serve_slot *s)
{
    *about = (struct serve_park_about){.owner = s->owner,
                                       .key = s->key,
                                       .key_len = s->key_len,
                                       .keep_rule = s->keep_rule,
                                       .by = s->compressed ? s->compressed_by : s->keep_rule,
                                       .compressed = s->compressed,
                                       .n_tokens = s->n_tokens};
    s->key = NULL;
    s->key_len = 0;
}

/* Whether what is parked saves enough of a prompt of n bytes to be brought back. */
static bool is_better(size_t n_parked, size_t n_slot, size_t n)
{
    return n_parked > n_slot && (n_parked - n_slot > LEAST_LOST || n_parked - n_slot > n / 10);
}

/* Takes the prompt of a slot into the list of those that are lost. Without memory it is not parked. */
static void add_lost(struct serve_slots *all, struct serve_claim *claim, int32_t i, struct serve_slot *s,
                     bool replaced)
{
    struct serve_lost *lost = calloc(1, sizeof *lost);
    if (!lost)
        return;
    lost->slot = i;
    lost->replaced = replaced;
    take_about(&lost->about, s);
    lost->owner = s->owner;
    lost->key = malloc(lost->about.key_len + 1);
    lost->key_len = lost->key ? lost->about.key_len : 0;
    if (lost->key)
        memcpy(lost->key, lost->about.key, lost->key_len);
    lost->next = claim->lost;
    claim->lost = lost;
    lost->next_moving = all->moving;
    all->moving = lost;
}

static void end_move(struct serve_slots *all, const struct serve_lost *lost)
{
    struct serve_lost **at = &all->moving;
    while (*at && *at != lost)
        at = &(*at)->next_moving;
    if (*at)
        *at = lost->next_moving;
}

/* Whether a request begins with more than n bytes of a conversation that is being parked. */
static bool moves_more(const struct serve_slots *all, const struct serve_ask *ask, size_t n)
{
    for (const struct serve_lost *l = all->moving; l; l = l->next_moving)
        if (serve_same_owner(&l->owner, &ask->owner) &&
            is_better(wnw__common_bytes(ask->key, ask->key_len, l->key, l->key_len), n, ask->key_len))
            return true;
    return false;
}

static void free_lost(struct serve_lost *lost)
{
    while (lost) {
        struct serve_lost *next = lost->next;
        serve_park_about_clear(&lost->about);
        free(lost->key);
        free(lost);
        lost = next;
    }
}

/* ---- Claims ---- */

static void take(struct serve_slots *all, int32_t i, const struct serve_ask *ask, uint64_t reserved,
                 int32_t chunk)
{
    struct serve_slot *s = &all->slot[i];
    s->claimed = true;
    s->visited = ask->visits;
    s->n_together = 0;
    s->reserved = reserved;
    s->stores = ask->stores;
    s->n_prompt = ask->n_prompt;
    s->n_answer = ask->n_predict * ask->n_slots;
    s->list_plus_1 = serve_document_is_join(ask->document_plus_1 - 1) ? ask->document_plus_1 : 0;
    if (ask->visits)
        return;
    char *key = malloc(ask->key_len + 1);
    free(s->key);
    s->key = key;
    s->key_len = key ? ask->key_len : 0;
    if (key && ask->key_len > 0)
        memcpy(key, ask->key, ask->key_len);
    s->fresh = true;
    s->used = ++all->clock;
    s->of_others = !serve_same_owner(&s->owner, &ask->owner);
    s->owner = ask->owner;
    s->refuses = ask->refuses;
    s->parked = s->no_reuse = false;
    s->keep_rule = ask->keep_rule;
    s->keep_rule.chunk = chunk;
}

/* Bytes of a prompt that a slot's own begins with, if it may be used. */
static size_t used_of(const struct serve_slot *s, const struct serve_ask *ask, bool reuses)
{
    return reuses && s->key ? wnw__common_bytes(ask->key, ask->key_len, s->key, s->key_len) : 0;
}

/* Lists the conversations that slots of a claim lose. n_used: bytes of the first slot's prompt that the request uses. */
static void find_lost(struct serve_slots *all, struct serve_claim *claim, size_t n_used)
{
    for (int32_t i = 0; i < all->n_slots; i++) {
        const size_t n = i == claim->slot ? n_used : 0;
        if (claim->slots >> i & 1 && loses(all, &all->slot[i], n))
            add_lost(all, claim, i, &all->slot[i], n == 0);
    }
}

/* The slots of a claim that are erased before they are used: those that were given up, and under a cap those of further answers. These are empty
 * until the prompt has been read, so what they hold would come on top of it. */
static uint64_t find_erased(struct serve_slots *all, const struct serve_claim *claim, bool visits)
{
    const bool counts = serve_settings()->cap > 0 && !visits;
    uint64_t bits = 0;
    for (int32_t i = 0; i < all->n_slots; i++) {
        struct serve_slot *s = &all->slot[i];
        if (!(claim->slots >> i & 1))
            continue;
        if (s->given_up || (counts && i != claim->slot && s->n_tokens > 0))
            bits |= UINT64_C(1) << i;
        s->given_up = false;
    }
    return bits;
}

/* Bytes of a request's prompt that it has in its slot, or parked. */
static size_t best_of(const struct serve_slots *all, const struct serve_ask *ask, int32_t slot,
                      size_t n_parked)
{
    const size_t n = used_of(&all->slot[slot], ask, may_reuse(&all->slot[slot], ask));
    return n > n_parked ? n : n_parked;
}

/* Claims what a request waits for, if it is free and there is room; *claimed says whether. */
static enum serve_answer try_claim(struct serve_slots *all, const struct serve_waiter *self,
                                   struct serve_claim *claim, bool *claimed, char *why)
{
    const struct serve_ask *ask = self->ask;
    size_t n_parked = 0;
    const uint64_t parked = ask->visits || ask->document_plus_1 > 0 ? 0 : serve_parks_find(&n_parked, ask);
    if (!may_begin(all, ask) || !choose_all(all, self, n_parked, &claim->slot, &claim->slots))
        return SERVE_CLAIMED;
    if (!ask->visits && ask->document_plus_1 == 0 && ask->reuse != SERVE_REUSE_NEVER &&
        moves_more(all, ask, best_of(all, ask, claim->slot, n_parked)))
        return SERVE_CLAIMED; /* it waits until that is parked */
    const enum serve_answer answer = serve_slots_check_cap(all, ask, why);
    *claimed = answer == SERVE_CLAIMED;
    if (!*claimed)
        return answer;
    *claimed = serve_slots_room_now(all, claim->slots, ask);
    if (!*claimed)
        return SERVE_CLAIMED; /* it waits until slots of other requests have given up what they held before */
    const struct serve_slot *s = &all->slot[claim->slot];
    const bool reuses = ask->visits || may_reuse(s, ask);
    const size_t n_slot = used_of(s, ask, reuses && ask->document_plus_1 == s->document_plus_1);
    claim->no_reuse = ask->document_plus_1 == 0 && !reuses;
    claim->must_restore = ask->document_plus_1 > 0 && (s->document_plus_1 != ask->document_plus_1 || !reuses);
    claim->parked = is_better(n_parked, n_slot, ask->key_len) ? parked : 0;
    if (!ask->visits && serve_parks_are_on())
        find_lost(all, claim, claim->parked ? 0 : n_slot);
    claim->erase = find_erased(all, claim, ask->visits);
    const uint64_t reserved =
        serve_slots_peak(all, ask); /* before it counts as one of those that have slots */
    const int32_t chunk = serve_slots_chunk(all, ask);
    for (int32_t i = 0; i < all->n_slots; i++)
        if (claim->slots >> i & 1)
            take(all, i, ask, i == claim->slot ? reserved : 0, chunk);
    all->slot[claim->slot].no_reuse = claim->no_reuse;
    all->slot[claim->slot].n_together = ask->n_slots;
    for (struct serve_waiter *w = all->waiting; w != self; w = w->next)
        w->n_overtaken++;
    return SERVE_CLAIMED;
}

/* The place of a waiter in the line, or with NULL its end. */
static struct serve_waiter **place_of(struct serve_slots *all, const struct serve_waiter *self)
{
    struct serve_waiter **at = &all->waiting;
    while (*at != self)
        at = &(*at)->next;
    return at;
}

/* Waits in line until the request has its slots, its client has left, or there is no room. */
static enum serve_answer wait_in_line(struct serve_slots *all, const struct serve_ask *ask,
                                      struct serve_claim *claim, char *why)
{
    struct serve_waiter self = {.ask = ask};
    bool claimed = false;
    *place_of(all, NULL) = &self;
    enum serve_answer answer = try_claim(all, &self, claim, &claimed, why);
    while (answer == SERVE_CLAIMED && !claimed) {
        serve_slots_wait();
        answer = ask->client_left && ask->client_left(ask->user)
                     ? SERVE_GONE
                     : try_claim(all, &self, claim, &claimed, why);
    }
    *place_of(all, &self) = self.next;
    serve_slots_wake();
    return answer;
}

enum serve_answer serve_slots_claim(const struct serve_ask *ask, struct serve_claim *claim, char *why)
{
    *claim = (struct serve_claim){.slot = -1};
    struct serve_slots *all = serve_slots_lock();
    enum serve_answer answer = serve_slots_check_cap(all, ask, why);
    if (answer == SERVE_CLAIMED)
        answer = wait_in_line(all, ask, claim, why);
    serve_slots_unlock();
    return answer;
}

bool serve_slots_claim_in_way(int32_t slot, struct serve_claim *claim)
{
    static const struct serve_ask visit = {.key = "", .slot = -1, .n_slots = 1, .visits = true};
    struct serve_slots *all = serve_slots_lock();
    const int32_t oldest = oldest_idle(all, 0);
    const bool found = oldest >= 0 && !serve_slots_list_fits(all, slot);
    *claim = (struct serve_claim){.slot = found ? oldest : -1, .slots = found ? UINT64_C(1) << oldest : 0};
    if (found && serve_parks_are_on())
        find_lost(all, claim, 0);
    if (found)
        take(all, oldest, &visit, 0, 0);
    serve_slots_unlock();
    return found;
}

enum serve_answer serve_slots_hold(int32_t slot, bool (*client_left)(void *user), void *user,
                                   struct serve_claim *claim)
{
    char why[SERVE_TEXT];
    const struct serve_ask ask = {
        .key = "", .slot = slot, .n_slots = 1, .visits = true, .client_left = client_left, .user = user};
    return serve_slots_claim(&ask, claim, why);
}

void serve_slots_release(const struct serve_claim *claim)
{
    struct serve_slots *all = serve_slots_lock();
    for (int32_t i = 0; i < all->n_slots; i++)
        if (claim->slots >> i & 1)
            all->slot[i].claimed = false;
    for (const struct serve_lost *l = claim->lost; l; l = l->next)
        end_move(all, l);
    serve_slots_wake();
    serve_slots_unlock();
    free_lost(claim->lost);
}

bool serve_slots_is_claimed(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const bool claimed = all->slot[slot].claimed;
    serve_slots_unlock();
    return claimed;
}

static void forget(struct serve_slot *s)
{
    free(s->key);
    s->key = NULL;
    s->key_len = 0;
}

void serve_slots_forget_prompt(int32_t slot)
{
    struct serve_slots *all = serve_slots_lock();
    forget(&all->slot[slot]);
    all->slot[slot].owner = (struct serve_owner){0}; /* what a file brings may be anybody's */
    serve_slots_unlock();
}

void serve_slots_was_copied(int32_t slot)
{
    struct serve_slots *all = serve_slots_lock();
    if (!all->slot[slot].claimed)
        forget(&all->slot[slot]);
    serve_slots_unlock();
}

void serve_slots_was_parked(struct serve_lost *lost)
{
    struct serve_slots *all = serve_slots_lock();
    end_move(all, lost);
    serve_slots_wake();
    serve_slots_unlock();
}

int32_t serve_slots_give_up(uint64_t but, struct serve_park_about *about, bool *parks)
{
    struct serve_slots *all = serve_slots_lock();
    const int32_t oldest = oldest_idle(all, but);
    *parks = false;
    if (oldest >= 0) {
        struct serve_slot *s = &all->slot[oldest];
        *parks = serve_parks_are_on() && loses(all, s, 0);
        if (*parks)
            take_about(about, s);
        forget(s);
        s->n_tokens = s->document_plus_1 = 0;
        s->entries = 0;
        s->reading = s->of_list = false;
        s->given_up = true;
    }
    serve_slots_unlock();
    return oldest;
}

bool serve_slots_take_prompt(int32_t slot, struct serve_park_about *about)
{
    struct serve_slots *all = serve_slots_lock();
    struct serve_slot *s = &all->slot[slot];
    const bool has = loses(all, s, 0);
    if (has)
        take_about(about, s);
    serve_slots_unlock();
    return has;
}
