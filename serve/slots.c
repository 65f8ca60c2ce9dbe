/* SPDX-License-Identifier: MIT */
#include "serve/automatic.h"
#include "serve/documents.h"
#include "serve/slots_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One for the process. */
static struct serve_slots slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;

struct serve_slots *serve_slots_lock(void)
{
    pthread_mutex_lock(&lock);
    return &slots;
}

void serve_slots_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void serve_slots_wake(void)
{
    pthread_cond_broadcast(&freed);
}

void serve_slots_wait(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&freed, &lock, &until);
}

/* ---- Opening ---- */

void serve_slots_open(int32_t n_slots, const struct serve_room *room, bool by_request)
{
    struct serve_slots *all = serve_slots_lock();
    all->n_slots = n_slots < SERVE_MAX_SLOTS ? n_slots : SERVE_MAX_SLOTS;
    all->row_bytes = room->row_bytes;
    all->uncut_bytes = room->uncut_bytes;
    all->row_entries = room->row_entries;
    all->n_cells = room->n_cells;
    all->n_batch = room->n_batch;
    all->n_vocab = room->n_vocab;
    all->most_text = room->most_text;
    all->window_bytes = room->window_bytes;
    all->rounding_bytes = room->rounding_bytes;
    all->by_request = by_request;
    for (int32_t i = 0; i < SERVE_MAX_SLOTS; i++) {
        free(all->slot[i].key);
        all->slot[i] = (struct serve_slot){.fresh = true, .keep_rule = serve_settings()->keep_rule};
    }
    serve_slots_unlock();
}

bool serve_slots_by_request(void)
{
    const struct serve_slots *all = serve_slots_lock();
    const bool by_request = all->by_request;
    serve_slots_unlock();
    return by_request;
}

int32_t serve_slots_n(void)
{
    const struct serve_slots *all = serve_slots_lock();
    const int32_t n = all->n_slots;
    serve_slots_unlock();
    return n;
}

int32_t serve_slots_named(const char *text)
{
    const size_t n_digits = strspn(text, "0123456789");
    const long n = n_digits > 0 && n_digits < 10 && !text[n_digits] ? strtol(text, NULL, 10) : -1;
    return n < serve_slots_n() ? (int32_t)n : -1;
}

/* What serve_slots_open was given. */
static struct serve_room opened_with(void)
{
    const struct serve_slots *all = serve_slots_lock();
    const struct serve_room own = {.row_bytes = all->row_bytes,
                                   .window_bytes = all->window_bytes,
                                   .row_entries = all->row_entries,
                                   .n_cells = all->n_cells,
                                   .n_vocab = all->n_vocab,
                                   .most_text = all->most_text};
    serve_slots_unlock();
    return own;
}

uint64_t serve_slots_row_bytes(void)
{
    return opened_with().row_bytes;
}

uint64_t serve_slots_window_bytes(void)
{
    return opened_with().window_bytes;
}

int32_t serve_slots_n_cells(void)
{
    return opened_with().n_cells;
}

int32_t serve_slots_n_vocab(void)
{
    return opened_with().n_vocab;
}

uint64_t serve_slots_most_text(void)
{
    return opened_with().most_text;
}

void serve_slots_set_most(int32_t most, int32_t length, const char *why)
{
    struct serve_slots *all = serve_slots_lock();
    all->most = most;
    all->why_full = why;
    all->times = most > 0 ? length / most : 1;
    serve_slots_unlock();
}

int32_t serve_slots_most(const char **why)
{
    const struct serve_slots *all = serve_slots_lock();
    const int32_t most = all->most;
    *why = all->why_full;
    serve_slots_unlock();
    return most;
}

int32_t serve_slots_times(void)
{
    const struct serve_slots *all = serve_slots_lock();
    const int32_t times = all->times;
    serve_slots_unlock();
    return times > 1 ? times : 1;
}

int32_t serve_slots_removed(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const int32_t n = all->slot[slot].n_removed;
    serve_slots_unlock();
    return n;
}

/* Tokens of a slot that it shares with no document. */
static int32_t own_tokens(const struct serve_slot *s)
{
    int32_t n_document = 0;
    int64_t entries;
    struct serve_keep_rule by;
    if (s->document_plus_1 > 0)
        (void)serve_document_look(s->document_plus_1 - 1, &n_document, &entries, &by);
    return s->n_tokens > n_document ? s->n_tokens - n_document : 0;
}

bool serve_slots_has_room(int32_t slot, int32_t n)
{
    const struct serve_slots *all = serve_slots_lock();
    const bool has = all->n_tokens - own_tokens(&all->slot[slot]) + n <= all->n_cells;
    serve_slots_unlock();
    return has;
}

const char *serve_policy_of_all(bool by_request)
{
    const struct serve_config *c = serve_settings();
    return serve_is_automatic(&c->keep_rule) && !by_request ? SERVE_FALLBACK : c->keep_rule.recipe;
}

/* ---- The decoding thread ---- */

bool serve_slots_keep_rule(int32_t slot, bool copied, struct serve_keep_rule *keep_rule)
{
    struct serve_slots *all = serve_slots_lock();
    struct serve_slot *s = &all->slot[slot];
    const struct serve_keep_rule *own = &serve_settings()->keep_rule;
    /* Needs are more where nobody knows how long the prompt is. */
    if (!s->claimed && (!serve_same_keep_rule(&s->keep_rule, own) ||
                        s->keep_rule.n_protected != own->n_protected || s->keep_rule.needs != own->needs)) {
        s->keep_rule = *own;
        s->fresh = true;
    }
    const bool fresh = s->fresh && !(copied && s->claimed && s->n_together > 0);
    if (fresh)
        *keep_rule = s->keep_rule;
    s->fresh = s->fresh && !fresh;
    if (fresh)
        serve_slots_wake();
    serve_slots_unlock();
    return fresh;
}

int32_t serve_slots_stores(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const int32_t stores = all->slot[slot].claimed ? all->slot[slot].stores : 0;
    serve_slots_unlock();
    return stores;
}

struct serve_how serve_slots_how(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const struct serve_slot *s = &all->slot[slot];
    const struct serve_how how = {.claim = s->claimed && !s->visited && s->stores == 0 ? s->used : 0,
                                  .parked = s->parked,
                                  .no_reuse = s->no_reuse,
                                  .refuses = s->refuses,
                                  .of_others = s->of_others,
                                  .owner = s->owner};
    serve_slots_unlock();
    return how;
}

void serve_slots_set_parked(int32_t slot)
{
    struct serve_slots *all = serve_slots_lock();
    all->slot[slot].parked = true;
    all->slot[slot].no_reuse = all->slot[slot].of_others = false;
    serve_slots_unlock();
}

void serve_slots_report(int32_t slot, const struct serve_content *content)
{
    struct serve_slots *all = serve_slots_lock();
    struct serve_slot *s = &all->slot[slot];
    /* A prompt that is compressed while it is read takes more until it has ended. */
    const bool now = content->compressed_by && !content->reading && (!s->compressed || s->reading);
    s->n_tokens = content->n_tokens;
    s->entries = content->entries;
    s->document_plus_1 = content->document_plus_1;
    s->reading = content->reading;
    s->unnoted = content->unnoted;
    s->of_list = content->of_list;
    s->n_removed = content->n_removed;
    s->compressed = content->compressed_by != NULL;
    if (content->compressed_by)
        s->compressed_by = *content->compressed_by;
    /* What the prompt took at most is free for others again. */
    if (now && s->claimed && all->row_entries > 0) {
        const uint64_t stays = (uint64_t)content->entries * all->row_bytes / (uint64_t)all->row_entries +
                               (uint64_t)s->n_answer * all->row_bytes;
        s->reserved = stays < s->reserved ? stays : s->reserved;
    }
    serve_slots_unlock();
}

bool serve_slots_is_reading(int32_t slot)
{
    const struct serve_slots *all = serve_slots_lock();
    const bool reading = all->slot[slot].reading;
    serve_slots_unlock();
    return reading;
}

void serve_slots_count(bool compressed_one, bool failed_one, const struct serve_cached *now)
{
    struct serve_slots *all = serve_slots_lock();
    all->n_compressed += compressed_one;
    all->n_failed += failed_one;
    all->bytes = now->bytes;
    all->window_held = now->window_bytes;
    all->n_tokens = now->n_tokens;
    serve_slots_unlock();
}

void serve_slots_count_fallback(void)
{
    struct serve_slots *all = serve_slots_lock();
    all->n_fallback++;
    serve_slots_unlock();
}

void serve_slots_set_query_numbers(uint64_t n)
{
    struct serve_slots *all = serve_slots_lock();
    all->query_numbers = n;
    serve_slots_unlock();
}
