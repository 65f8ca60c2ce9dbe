/* SPDX-License-Identifier: MIT */
/*
 * Who has which slot, and what is in it. A request claims its slots before the server sees it, so that the policy of each
 * slot is known when its prompt is read, and so that a cap on memory is kept before anything is read. Requests that
 * come in while all slots are taken wait in the order in which they came.
 */
#include "serve/documents.h"
#include "serve/serve.h"
#include "winnow_method.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct slot {
    bool claimed, fresh; /* fresh: the decoding thread has not seen what is wanted */
    uint64_t used;       /* when it was claimed last, to compare */
    uint64_t reserved;   /* bytes at most, while it is claimed */
    int64_t n_predict;
    int32_t stores; /* 1 + the document that its request reads */
    char *key;      /* of the prompt that it had last */
    size_t key_len;
    struct serve_want want;
    /* What the decoding thread said last. */
    int32_t n_tokens;
    int64_t entries;
    int32_t behind;
    bool reading, compressed;
    struct serve_want compressed_by;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    struct slot slot[SERVE_MAX_SLOTS];
    int32_t n_slots, row_entries;
    uint64_t row_bytes, query_bytes, clock, next_ticket, turn;
    bool by_request;
    uint64_t bytes, n_compressed, n_failed, n_fallback, n_refused;
    int64_t n_tokens;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

bool serve_keeps_all(const struct serve_want *want)
{
    return strcmp(want->recipe, "full") == 0;
}

const char *serve_policy_of_all(bool by_request)
{
    const struct serve_config *c = serve_settings();
    return c->is_automatic && !by_request ? SERVE_FALLBACK : c->want.recipe;
}

/* Whether two recipes are the same, however they are written. */
static bool same_recipe(const char *a, const char *b)
{
    wnw_policy *p = NULL, *q = NULL;
    if (strcmp(a, b) == 0)
        return true;
    const bool same = wnw_policy_parse(&p, a, NULL) == WNW_OK && wnw_policy_parse(&q, b, NULL) == WNW_OK &&
                      strcmp(wnw_policy_string(p), wnw_policy_string(q)) == 0;
    wnw_policy_free(p);
    wnw_policy_free(q);
    return same;
}

bool serve_same_want(const struct serve_want *a, const struct serve_want *b)
{
    return same_recipe(a->recipe, b->recipe) && a->size.kind == b->size.kind &&
           a->size.budget == b->size.budget && a->size.bytes == b->size.bytes &&
           !(a->size.ratio < b->size.ratio) && !(a->size.ratio > b->size.ratio);
}

void serve_slots_open(int32_t n_slots, uint64_t row_bytes, int32_t row_entries, bool by_request)
{
    pthread_mutex_lock(&all.lock);
    all.n_slots = n_slots < SERVE_MAX_SLOTS ? n_slots : SERVE_MAX_SLOTS;
    all.row_bytes = row_bytes;
    all.row_entries = row_entries;
    all.by_request = by_request;
    for (int32_t i = 0; i < SERVE_MAX_SLOTS; i++) {
        free(all.slot[i].key);
        all.slot[i] = (struct slot){.want = serve_settings()->want};
    }
    pthread_mutex_unlock(&all.lock);
}

bool serve_slots_by_request(void)
{
    pthread_mutex_lock(&all.lock);
    const bool by_request = all.by_request;
    pthread_mutex_unlock(&all.lock);
    return by_request;
}

int32_t serve_slots_n(void)
{
    pthread_mutex_lock(&all.lock);
    const int32_t n = all.n_slots;
    pthread_mutex_unlock(&all.lock);
    return n;
}

uint64_t serve_slots_row_bytes(void)
{
    pthread_mutex_lock(&all.lock);
    const uint64_t bytes = all.row_bytes;
    pthread_mutex_unlock(&all.lock);
    return bytes;
}

void serve_slots_set_query_bytes(uint64_t bytes)
{
    pthread_mutex_lock(&all.lock);
    all.query_bytes = bytes;
    pthread_mutex_unlock(&all.lock);
}

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
static int32_t choose(const struct serve_ask *ask)
{
    int32_t best = -1, oldest = -1;
    size_t most = ask->key_len / 10;
    if (ask->slot >= 0)
        return all.slot[ask->slot].claimed ? -1 : ask->slot;
    for (int32_t i = 0; i < all.n_slots; i++) {
        const struct slot *s = &all.slot[i];
        if (s->claimed)
            continue;
        const size_t n = s->key ? common_prefix(ask->key, ask->key_len, s->key, s->key_len) : 0;
        if (n > most) {
            most = n;
            best = i;
        }
        if (oldest < 0 || s->used < all.slot[oldest].used)
            oldest = i;
    }
    return best >= 0 ? best : oldest;
}

/* Sets *slots to the chosen slot and the first free others, which are those that the server takes for further answers. */
static bool choose_all(const struct serve_ask *ask, int32_t *slot, uint64_t *slots)
{
    *slot = choose(ask);
    if (*slot < 0)
        return false;
    *slots = UINT64_C(1) << *slot;
    int32_t n = 1;
    for (int32_t i = 0; i < all.n_slots && n < ask->n_slots; i++)
        if (i != *slot && !all.slot[i].claimed) {
            *slots |= UINT64_C(1) << i;
            n++;
        }
    return n >= ask->n_slots;
}

/* Whether a rule needs an observation of one of these kinds; true where it cannot be told. */
static bool needs_one(const char *recipe, uint32_t kinds)
{
    wnw_policy *policy;
    if (wnw_policy_parse(&policy, recipe, NULL) != WNW_OK)
        return true;
    const bool needs = (wnw_policy_needs(policy).flags & kinds) != 0;
    wnw_policy_free(policy);
    return needs;
}

bool serve_looks_at_question(const char *recipe)
{
    return strcmp(recipe, "full") != 0 && needs_one(recipe, WNW_NEED_WINDOW_ATTN);
}

bool serve_looks_with_all(const char *recipe)
{
    return strcmp(recipe, "full") != 0 && needs_one(recipe, WNW_NEED_EVERY_QUERY);
}

bool serve_looks_with_queries(const char *recipe)
{
    return strcmp(recipe, "full") != 0 && needs_one(recipe, WNW_NEED_EVERY_QUERY | WNW_NEED_WINDOW_ATTN);
}

/* Whether a rule needs what must have been noted while the whole prompt was read. */
static bool looks_back(const char *recipe)
{
    return needs_one(recipe, WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX | WNW_NEED_QUERY_STATS |
                                 WNW_NEED_EVERY_QUERY | WNW_NEED_INPUT_GATE);
}

/* Whether a prompt may begin with what a slot has kept of its last one. */
static bool may_reuse(const struct slot *s, const struct serve_ask *ask)
{
    if (ask->reuse != SERVE_REUSE_SAME)
        return ask->reuse == SERVE_REUSE_ANY;
    if (s->behind != ask->behind)
        return false;
    if (strcmp(s->want.recipe, ask->want.recipe) != 0 && !serve_keeps_all(&ask->want) &&
        looks_back(ask->want.recipe))
        return false;
    if (!s->compressed)
        return true;
    if (!serve_same_want(&s->compressed_by, &ask->want) ||
        s->compressed_by.n_protected != ask->want.n_protected)
        return false;
    return !serve_looks_at_question(ask->want.recipe) ||
           (s->key && common_prefix(ask->key, ask->key_len, s->key, s->key_len) == s->key_len);
}

/* ---- The cap ---- */

static uint64_t peak_of(const struct serve_ask *ask)
{
    const uint64_t queries = serve_looks_with_all(ask->want.recipe) ? all.query_bytes : 0;
    return (uint64_t)ask->n_prompt * queries +
           (uint64_t)(ask->n_prompt + ask->n_predict * ask->n_slots) * all.row_bytes;
}

/* Documents stay as long as the server runs. */
static uint64_t documents_take(void)
{
    return all.row_entries > 0
               ? (uint64_t)serve_documents_entries() * all.row_bytes / (uint64_t)all.row_entries
               : 0;
}

static uint64_t all_reserved(void)
{
    uint64_t bytes = documents_take();
    for (int32_t i = 0; i < all.n_slots; i++)
        bytes += all.slot[i].claimed ? all.slot[i].reserved : 0;
    return bytes;
}

static enum serve_answer check_cap(const struct serve_ask *ask, char *why)
{
    const uint64_t cap = serve_settings()->cap, peak = peak_of(ask), taken = all_reserved();
    const uint64_t documents = documents_take();
    if (cap == 0)
        return SERVE_CLAIMED;
    if (peak > cap - (documents < cap ? documents : cap)) {
        snprintf(why, SERVE_TEXT,
                 "a prompt of %" PRId64 " tokens with %" PRId64 " to answer takes %" PRIu64
                 " bytes while it is read, and this server may hold %" PRIu64
                 ", of which its documents take %" PRIu64,
                 ask->n_prompt, ask->n_predict, peak, cap, documents);
        return SERVE_TOO_LONG;
    }
    if (taken + peak > cap) {
        snprintf(why, SERVE_TEXT,
                 "other requests leave no room now: %" PRIu64 " bytes are wanted, %" PRIu64 " of %" PRIu64
                 " are free",
                 peak, cap - (taken < cap ? taken : cap), cap);
        all.n_refused++;
        return SERVE_BUSY;
    }
    return SERVE_CLAIMED;
}

/* ---- Claims ---- */

static void take(int32_t i, const struct serve_ask *ask, uint64_t reserved)
{
    struct slot *s = &all.slot[i];
    char *key = malloc(ask->key_len + 1);
    free(s->key);
    s->key = key;
    s->key_len = key ? ask->key_len : 0;
    if (key && ask->key_len > 0)
        memcpy(key, ask->key, ask->key_len);
    s->claimed = s->fresh = true;
    s->used = ++all.clock;
    s->reserved = reserved;
    s->n_predict = ask->n_predict;
    s->stores = ask->stores;
    s->want = ask->want;
}

static enum serve_answer try_claim(const struct serve_ask *ask, struct serve_claim *claim, bool *claimed,
                                   char *why)
{
    const enum serve_answer answer = check_cap(ask, why);
    *claimed = answer == SERVE_CLAIMED && choose_all(ask, &claim->slot, &claim->slots);
    if (!*claimed)
        return answer;
    const struct slot *s = &all.slot[claim->slot];
    const bool reuses = may_reuse(s, ask);
    claim->no_reuse = ask->behind == 0 && !reuses;
    claim->puts = ask->behind > 0 && (s->behind != ask->behind || !reuses);
    for (int32_t i = 0; i < all.n_slots; i++)
        if (claim->slots >> i & 1)
            take(i, ask, i == claim->slot ? peak_of(ask) : 0);
    return SERVE_CLAIMED;
}

/* Waits a moment, or until a slot was freed. */
static void wait_a_moment(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&all.freed, &all.lock, &until);
}

enum serve_answer serve_slots_claim(const struct serve_ask *ask, struct serve_claim *claim, char *why)
{
    enum serve_answer answer;
    bool claimed = false;
    pthread_mutex_lock(&all.lock);
    answer = check_cap(ask, why);
    const bool waits = answer == SERVE_CLAIMED;
    const uint64_t ticket = all.next_ticket;
    all.next_ticket += waits;
    while (answer == SERVE_CLAIMED && !claimed) {
        if (all.turn == ticket)
            answer = try_claim(ask, claim, &claimed, why);
        if (claimed || answer != SERVE_CLAIMED)
            break;
        wait_a_moment();
        /* A client that leaves lets go of its turn when that has come. */
        if (all.turn == ticket && ask->gone && ask->gone(ask->user))
            answer = SERVE_GONE;
    }
    if (waits) { /* it was its turn, or it would wait still */
        all.turn++;
        pthread_cond_broadcast(&all.freed);
    }
    pthread_mutex_unlock(&all.lock);
    return answer;
}

void serve_slots_release(const struct serve_claim *claim)
{
    pthread_mutex_lock(&all.lock);
    for (int32_t i = 0; i < all.n_slots; i++)
        if (claim->slots >> i & 1)
            all.slot[i].claimed = false;
    pthread_cond_broadcast(&all.freed);
    pthread_mutex_unlock(&all.lock);
}

/* ---- The decoding thread ---- */

bool serve_slots_want(int32_t slot, struct serve_want *want)
{
    pthread_mutex_lock(&all.lock);
    struct slot *s = &all.slot[slot];
    if (!s->claimed) {
        s->fresh = s->fresh || !serve_same_want(&s->want, &serve_settings()->want);
        s->want = serve_settings()->want;
    }
    const bool fresh = s->fresh;
    s->fresh = false;
    *want = s->want;
    pthread_mutex_unlock(&all.lock);
    return fresh;
}

bool serve_slots_is_claimed(int32_t slot)
{
    pthread_mutex_lock(&all.lock);
    const bool claimed = all.slot[slot].claimed;
    pthread_mutex_unlock(&all.lock);
    return claimed;
}

int32_t serve_slots_stores(int32_t slot)
{
    pthread_mutex_lock(&all.lock);
    const int32_t stores = all.slot[slot].claimed ? all.slot[slot].stores : 0;
    pthread_mutex_unlock(&all.lock);
    return stores;
}

void serve_slots_report(int32_t slot, const struct serve_content *held)
{
    pthread_mutex_lock(&all.lock);
    struct slot *s = &all.slot[slot];
    const bool now = held->compressed_by && !s->compressed;
    s->n_tokens = held->n_tokens;
    s->entries = held->entries;
    s->behind = held->behind;
    s->reading = held->reading;
    s->compressed = held->compressed_by != NULL;
    if (held->compressed_by)
        s->compressed_by = *held->compressed_by;
    /* What the prompt took at most is free for others again. */
    if (now && s->claimed && all.row_entries > 0) {
        const uint64_t stays = (uint64_t)held->entries * all.row_bytes / (uint64_t)all.row_entries +
                               (uint64_t)s->n_predict * all.row_bytes;
        s->reserved = stays < s->reserved ? stays : s->reserved;
    }
    pthread_mutex_unlock(&all.lock);
}

bool serve_slots_is_reading(int32_t slot)
{
    pthread_mutex_lock(&all.lock);
    const bool reading = all.slot[slot].reading;
    pthread_mutex_unlock(&all.lock);
    return reading;
}

void serve_slots_count(bool compressed_one, bool failed_one, uint64_t bytes, int64_t n_tokens)
{
    pthread_mutex_lock(&all.lock);
    all.n_compressed += compressed_one;
    all.n_failed += failed_one;
    all.bytes = bytes;
    all.n_tokens = n_tokens;
    pthread_mutex_unlock(&all.lock);
}

void serve_slots_count_fallback(void)
{
    pthread_mutex_lock(&all.lock);
    all.n_fallback++;
    pthread_mutex_unlock(&all.lock);
}

/* ---- What is shown ---- */

static void print_size(FILE *f, const wnw_size *size)
{
    if (size->kind == WNW_SIZE_BUDGET)
        fprintf(f, ", \"budget\": %" PRId64, size->budget);
    else if (size->kind == WNW_SIZE_RATIO)
        fprintf(f, ", \"ratio\": %.6g", size->ratio);
    else if (size->kind == WNW_SIZE_BYTES)
        fprintf(f, ", \"kv_bytes\": %" PRIu64, size->bytes);
}

/* Recipes have no characters that JSON would have to escape: they were parsed. */
static void print_slot(FILE *f, int32_t i)
{
    const struct slot *s = &all.slot[i];
    const double each = all.row_entries > 0 ? (double)s->entries / (double)all.row_entries : 0.0;
    fprintf(f,
            "%s\n  {\"id\": %d, \"busy\": %s, \"tokens\": %d, \"entries\": %.1f, \"bytes\": %.0f, "
            "\"compressed\": %s, \"policy\": \"%s\"",
            i > 0 ? "," : "", (int)i, s->claimed ? "true" : "false", (int)s->n_tokens, each,
            each * (double)all.row_bytes, s->compressed ? "true" : "false", s->want.recipe);
    print_size(f, &s->want.size);
    fprintf(f, ", \"protected\": %d", (int)s->want.n_protected);
    if (s->behind > 0)
        fprintf(f, ", \"document\": \"%s\"", serve_document_name(s->behind - 1));
    fputc('}', f);
}

/* Names have no characters that JSON would have to escape either. */
static void print_document(FILE *f, int32_t d)
{
    int32_t n_tokens;
    int64_t entries;
    struct serve_want by;
    const bool is_read = serve_document_look(d, &n_tokens, &entries, &by);
    const double each = all.row_entries > 0 ? (double)entries / (double)all.row_entries : 0.0;
    fprintf(f,
            "%s\n  {\"name\": \"%s\", \"ready\": %s, \"stored\": %s, \"tokens\": %d, \"entries\": %.1f, "
            "\"bytes\": %.0f, \"policy\": \"%s\"",
            d > 0 ? "," : "", serve_document_name(d), is_read ? "true" : "false",
            serve_document_is_stored(d) ? "true" : "false", (int)n_tokens, each, each * (double)all.row_bytes,
            by.recipe);
    print_size(f, &by.size);
    fputc('}', f);
}

/* Tokens that several slots share count once, as they do in memory. */
static double uncompressed(void)
{
    return (double)all.n_tokens * (double)all.row_bytes;
}

char *serve_slots_json(void)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    pthread_mutex_lock(&all.lock);
    fprintf(f,
            "{\"bytes\": %" PRIu64 ", \"bytes_uncompressed\": %.0f, \"bytes_of_a_token\": %" PRIu64
            ", \"cap\": %" PRIu64 ", \"compressions\": %" PRIu64 ", \"compressions_failed\": %" PRIu64
            ", \"compressions_by_fallback\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"policy\": \"%s\"",
            all.bytes, uncompressed(), all.row_bytes, serve_settings()->cap, all.n_compressed, all.n_failed,
            all.n_fallback, all.n_refused, serve_policy_of_all(all.by_request));
    print_size(f, &serve_settings()->want.size);
    fputs(", \"documents\": [", f);
    for (int32_t d = 0; d < serve_documents_n(); d++)
        print_document(f, d);
    fputs("], \"slots\": [", f);
    for (int32_t i = 0; i < all.n_slots; i++)
        print_slot(f, i);
    fputs("]}\n", f);
    pthread_mutex_unlock(&all.lock);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void print_metric(FILE *f, const char *name, const char *type, const char *help, double value)
{
    fprintf(f, "# HELP winnow:%s %s\n# TYPE winnow:%s %s\nwinnow:%s %.0f\n", name, help, name, type, name,
            value);
}

char *serve_slots_metrics(void)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    pthread_mutex_lock(&all.lock);
    print_metric(f, "kv_bytes", "gauge", "Bytes mapped for keys and values.", (double)all.bytes);
    print_metric(f, "kv_bytes_uncompressed", "gauge",
                 "Bytes that the slots' tokens would take without compression.", uncompressed());
    print_metric(f, "kv_bytes_cap", "gauge", "Bytes that requests may take, 0 = no cap.",
                 (double)serve_settings()->cap);
    print_metric(f, "compressions_total", "counter", "Sequences that were compressed.",
                 (double)all.n_compressed);
    print_metric(f, "compressions_failed_total", "counter",
                 "Sequences that stay as they are, for a reason in the log.", (double)all.n_failed);
    print_metric(f, "compressions_by_fallback_total", "counter",
                 "Compressions by keydiff, because the policy that was wanted refused.",
                 (double)all.n_fallback);
    print_metric(f, "refused_total", "counter", "Requests that were refused for want of room.",
                 (double)all.n_refused);
    fputs("# HELP winnow:slot_tokens Tokens of a slot.\n# TYPE winnow:slot_tokens gauge\n", f);
    for (int32_t i = 0; i < all.n_slots; i++)
        fprintf(f, "winnow:slot_tokens{slot=\"%d\"} %d\n", (int)i, (int)all.slot[i].n_tokens);
    fputs(
        "# HELP winnow:slot_entries Entries of a slot, mean over heads.\n# TYPE winnow:slot_entries gauge\n",
        f);
    for (int32_t i = 0; i < all.n_slots; i++)
        fprintf(f, "winnow:slot_entries{slot=\"%d\"} %.1f\n", (int)i,
                all.row_entries > 0 ? (double)all.slot[i].entries / all.row_entries : 0.0);
    pthread_mutex_unlock(&all.lock);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
