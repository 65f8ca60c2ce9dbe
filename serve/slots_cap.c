/* SPDX-License-Identifier: MIT */
/* The cap on keys and values over all slots: counted before anything is read. */
#include "app/chunks.h"
#include "serve/automatic.h"
#include "serve/documents.h"
#include "serve/slots_impl.h"
#include "winnow_tools.h"

#include <inttypes.h>
#include <stdio.h>

/* What is observed while a request is read: for the server's own rule, for requests that have slots, and for itself. */
static uint32_t needs_beside(const struct serve_slots *all)
{
    uint32_t needs = serve_settings()->keep_rule.needs;
    for (int32_t i = 0; i < all->n_slots; i++)
        needs |= all->slot[i].claimed ? all->slot[i].keep_rule.needs : 0;
    return needs;
}

/* Bytes of a token's queries that are kept for rules that look with all. */
static uint64_t query_bytes(const struct serve_slots *all, uint32_t needs)
{
    return all->query_numbers * (serve_rounds_queries(needs) ? 2 : 4);
}

/* What a request makes the queries of others take more, whose prompts may be half read: they are rounded no more. */
static uint64_t peak_of_others(const struct serve_slots *all, uint32_t before, uint32_t after)
{
    uint64_t n = 0;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        n += s->claimed && serve_looks_with_all(&s->keep_rule) ? (uint64_t)s->n_prompt : 0;
    }
    return n * (query_bytes(all, after) - query_bytes(all, before));
}

static uint64_t bytes_of(const struct serve_slots *all, int64_t entries)
{
    return all->row_entries > 0 && entries > 0
               ? (uint64_t)entries * all->row_bytes / (uint64_t)all->row_entries
               : 0;
}

/* Documents stay as long as the server runs. */
static uint64_t documents_take(const struct serve_slots *all)
{
    return bytes_of(all, serve_documents_entries());
}

/* What no request can have: windows fill up with the first long prompt, and stay full. */
static uint64_t always_taken(const struct serve_slots *all)
{
    return documents_take(all) + all->window_bytes + all->rounding_bytes;
}

/* ---- Lists of documents ----
 *
 * The requests that begin with a list share its cells, which count once. A list without a request counts nothing: the decoding thread gives it up
 * where its memory is needed. */

static bool list_counts(const struct serve_slots *all, int32_t list_plus_1, int32_t n_slots)
{
    for (int32_t i = 0; i < n_slots; i++)
        if (all->slot[i].claimed && all->slot[i].list_plus_1 == list_plus_1)
            return true;
    return false;
}

/* What the later documents of a list take, also while it is made. */
static uint64_t list_takes(const struct serve_slots *all, int32_t list_plus_1)
{
    struct serve_join_size size;
    (void)serve_join_look(list_plus_1 - 1, all->row_entries,
                          &size); /* of one that is gone slots have the cells */
    return bytes_of(all, size.is_there ? size.kept : size.most);
}

static uint64_t lists_take(const struct serve_slots *all)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        if (s->claimed && s->list_plus_1 > 0 && !list_counts(all, s->list_plus_1, i))
            bytes += list_takes(all, s->list_plus_1);
    }
    return bytes;
}

/* What the list of a request takes, unless another request has it. */
static uint64_t list_adds(const struct serve_slots *all, const struct serve_ask *ask)
{
    const int32_t list_plus_1 = serve_document_is_join(ask->document_plus_1 - 1) ? ask->document_plus_1 : 0;
    return list_plus_1 == 0 || list_counts(all, list_plus_1, all->n_slots) ? 0 : list_takes(all, list_plus_1);
}

bool serve_slots_give_up_list(int32_t d)
{
    struct serve_slots *all = serve_slots_lock();
    const bool given_up = !list_counts(all, d + 1, all->n_slots);
    if (given_up)
        serve_join_lost(d);
    serve_slots_unlock();
    return given_up;
}

/* ---- A request ---- */

/* Bytes of a request whose prompt is compressed at its end. */
static uint64_t peak_of_whole(const struct serve_slots *all, const struct serve_ask *ask)
{
    const uint32_t before = needs_beside(all), after = before | ask->keep_rule.needs;
    const uint64_t queries = serve_looks_with_all(&ask->keep_rule) ? query_bytes(all, after) : 0;
    return (uint64_t)ask->n_prompt * queries + peak_of_others(all, before, after) +
           (uint64_t)(ask->n_prompt + ask->n_predict * ask->n_slots) * all->row_bytes;
}

/* Entries of each head that stay of a prompt of n tokens. What is too little to compress comes on top. */
static int64_t kept_of(const struct serve_keep_rule *keep_rule, int64_t n)
{
    const int64_t header = keep_rule->n_protected < n ? keep_rule->n_protected : n;
    const double share = (double)(n - header) * (1 - keep_rule->size.ratio);
    const int64_t size =
        keep_rule->size.kind == WNW_SIZE_BUDGET ? keep_rule->size.budget : (int64_t)share + 1;
    const int64_t kept = header + size;
    return kept < n ? kept : n;
}

/* The same where its prompt is compressed while it is read: what is kept, and what comes until the next time. */
static uint64_t peak_of_chunks(const struct serve_slots *all, const struct serve_ask *ask, int32_t chunk)
{
    const int64_t kept = kept_of(&ask->keep_rule, ask->n_prompt), most = kept + chunk + all->n_batch;
    const int64_t n = most < ask->n_prompt ? most : ask->n_prompt;
    const uint32_t before = needs_beside(all);
    return (uint64_t)(n + ask->n_predict * ask->n_slots) * all->row_bytes +
           (uint64_t)(ask->n_prompt - n) * all->uncut_bytes +
           peak_of_others(all, before, before | ask->keep_rule.needs);
}

/* Bytes that a request could have if there were no other. */
static uint64_t most_of_one(const struct serve_slots *all, const struct serve_ask *ask)
{
    const uint64_t cap = serve_settings()->cap, always = always_taken(all) + list_adds(all, ask);
    return always < cap ? cap - always : 0;
}

/* The largest chunk that fits, where the whole prompt does not; 0: the whole prompt fits. */
static int32_t chunk_that_fits(const struct serve_slots *all, const struct serve_ask *ask)
{
    const uint64_t most = most_of_one(all, ask);
    if (serve_settings()->cap == 0 || peak_of_whole(all, ask) <= most)
        return 0;
    int32_t chunk = APP_CHUNK_USUAL;
    while (chunk > WNW_TURNS_LEAST_NEW && peak_of_chunks(all, ask, chunk) > most)
        chunk /= 2;
    return chunk;
}

/* Whether a rule can compress a prompt while that is read. Under a cap its size must bound what it keeps. */
static bool can_chunk(const struct serve_keep_rule *rule)
{
    const bool sized = rule->size.kind == WNW_SIZE_BUDGET || rule->size.kind == WNW_SIZE_RATIO;
    return rule->chunks && (rule->by_blocks ? serve_settings()->cap == 0 : sized);
}

int32_t serve_slots_chunk(const struct serve_slots *all, const struct serve_ask *ask)
{
    const int32_t chunk = serve_settings()->chunk;
    if (chunk == 0 || !can_chunk(&ask->keep_rule) || ask->stores > 0 || ask->visits || !all->by_request)
        return 0;
    if (chunk > 0)
        return chunk;
    const int32_t fits = chunk_that_fits(all, ask);
    return fits > 0 ? fits : serve_automatic_chunk(&ask->keep_rule, ask->n_prompt);
}

uint64_t serve_slots_peak(const struct serve_slots *all, const struct serve_ask *ask)
{
    const int32_t chunk = serve_slots_chunk(all, ask);
    return chunk > 0 ? peak_of_chunks(all, ask, chunk) : peak_of_whole(all, ask);
}

static uint64_t all_reserved(const struct serve_slots *all)
{
    uint64_t bytes = always_taken(all) + lists_take(all);
    for (int32_t i = 0; i < all->n_slots; i++)
        bytes += all->slot[i].incoming + (all->slot[i].claimed ? all->slot[i].reserved : 0);
    return bytes;
}

/* What a slot holds that is no document's, nor of a list that counts. Of another list it may be all that is left. */
static uint64_t held_by(const struct serve_slots *all, const struct serve_slot *s)
{
    int32_t n_tokens;
    int64_t entries = 0;
    struct serve_keep_rule by;
    struct serve_join_size list = {0};
    if (s->document_plus_1 > 0)
        (void)serve_document_look(s->document_plus_1 - 1, &n_tokens, &entries, &by);
    if (serve_document_is_join(s->document_plus_1 - 1) && !list_counts(all, s->document_plus_1, all->n_slots))
        (void)serve_join_look(s->document_plus_1 - 1, all->row_entries, &list);
    return bytes_of(all, s->entries - (entries > list.kept ? entries - list.kept : 0));
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool serve_slots_room_now(const struct serve_slots *all, uint64_t slots, const struct serve_ask *ask)
{
    const uint64_t cap = serve_settings()->cap, peak = serve_slots_peak(all, ask) + list_adds(all, ask);
    uint64_t bytes = always_taken(all) + lists_take(all), own = 0;
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        own += slots >> i & 1 ? held_by(all, s) : 0;
        if (!(slots >> i & 1))
            bytes += larger(s->incoming, s->claimed ? larger(s->reserved, held_by(all, s)) : 0);
    }
    return cap == 0 || bytes == always_taken(all) || bytes + larger(own, peak) <= cap;
}

enum serve_answer serve_slots_check_cap(struct serve_slots *all, const struct serve_ask *ask, char *why)
{
    const uint64_t cap = serve_settings()->cap, list = list_adds(all, ask), taken = all_reserved(all);
    const uint64_t peak = serve_slots_peak(all, ask) + list;
    const uint64_t always = always_taken(all);
    if (cap == 0 || ask->visits)
        return SERVE_CLAIMED;
    if (peak > cap - (always < cap ? always : cap)) {
        int n = snprintf(why, SERVE_TEXT,
                         "a prompt of %" PRId64 " tokens with %" PRId64 " to answer takes %" PRIu64
                         " bytes while it is read%s, and this server may hold %" PRIu64
                         ", of which its documents take %" PRIu64,
                         ask->n_prompt, ask->n_predict, peak,
                         serve_slots_chunk(all, ask) > 0 ? " in chunks" : "", cap, documents_take(all));
        if (list > 0)
            n += snprintf(why + n, SERVE_TEXT - (size_t)n,
                          "; putting its documents one after the other takes %" PRIu64 " of these bytes",
                          list);
        if (all->window_bytes > 0)
            n +=
                snprintf(why + n, SERVE_TEXT - (size_t)n, " and sliding windows %" PRIu64, all->window_bytes);
        if (all->rounding_bytes > 0)
            n += snprintf(why + n, SERVE_TEXT - (size_t)n, " and room for whole pages %" PRIu64,
                          all->rounding_bytes);
        if ((!ask->keep_rule.chunks || ask->keep_rule.by_blocks) && !serve_keeps_all(&ask->keep_rule) &&
            serve_settings()->chunk != 0)
            snprintf(
                why + n, SERVE_TEXT - (size_t)n, "; %s",
                ask->keep_rule.by_blocks
                    ? "its policy keeps some of every block of a prompt, and keydiff with a size does not"
                    : "its policy cannot compress a prompt while it is read, as keydiff can");
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

/* What other slots hold, or may come to hold. */
static uint64_t others_take(const struct serve_slots *all, int32_t slot)
{
    uint64_t bytes = always_taken(all) + lists_take(all);
    for (int32_t i = 0; i < all->n_slots; i++) {
        const struct serve_slot *s = &all->slot[i];
        if (i != slot)
            bytes += larger(larger(held_by(all, s), s->claimed ? s->reserved : 0), s->incoming);
    }
    return bytes;
}

bool serve_slots_list_fits(const struct serve_slots *all, int32_t slot)
{
    const uint64_t cap = serve_settings()->cap;
    return cap == 0 || all->slot[slot].list_plus_1 == 0 ||
           others_take(all, slot) + all->slot[slot].reserved <= cap;
}

enum serve_answer serve_slots_comes_in(int32_t slot, int64_t n, char *why)
{
    const uint64_t cap = serve_settings()->cap;
    struct serve_slots *all = serve_slots_lock();
    const uint64_t bytes = (uint64_t)n * all->row_bytes, always = always_taken(all),
                   others = others_take(all, slot);
    enum serve_answer answer = SERVE_CLAIMED;
    if (cap > 0 && (always > cap || bytes > cap - always)) {
        snprintf(why, SERVE_TEXT,
                 "the file's %" PRId64 " tokens take %" PRIu64
                 " bytes while they are read, and this server may hold %" PRIu64,
                 n, bytes, cap);
        answer = SERVE_TOO_LONG;
    } else if (cap > 0 && (others > cap || bytes > cap - others)) {
        snprintf(why, SERVE_TEXT,
                 "the file's %" PRId64 " tokens take %" PRIu64
                 " bytes while they are read, and other slots leave %" PRIu64 " of %" PRIu64
                 ": erase one of them first",
                 n, bytes, others < cap ? cap - others : 0, cap);
        all->n_refused++;
        answer = SERVE_BUSY;
    } else {
        all->slot[slot].incoming = bytes;
    }
    serve_slots_unlock();
    return answer;
}

void serve_slots_came_in(int32_t slot)
{
    struct serve_slots *all = serve_slots_lock();
    all->slot[slot].incoming = 0;
    serve_slots_wake();
    serve_slots_unlock();
}
