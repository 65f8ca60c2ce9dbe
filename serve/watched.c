/* SPDX-License-Identifier: MIT */
#include "serve/watched.h"

#include "serve/automatic.h"
#include "winnow_calibrate.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What is in the cache ---- */

/* Layer i of the cache; false: it is as libllama has it. */
static bool get_layer(const struct serve_watched *w, int32_t i, wnw_bridge_layer *l)
{
    *l = wnw_bridge_layer_default();
    return wnw_bridge_get_layer(w->cache, i, l) == WNW_OK && l->ragged;
}

/* Layers that slide have cells for their windows, of all slots, and for one computation: fewer than the others, unless the context is short
 * or --swa-full says otherwise. */
static bool slides(const struct serve_watched *w, const wnw_bridge_layer *l)
{
    return l->n_cells < w->sequences.n_cells;
}

bool serve_watched_whole_layer(const struct serve_watched *w, int32_t i, wnw_bridge_layer *l)
{
    return get_layer(w, i, l) && !slides(w, l);
}

bool serve_watched_shares_caches(const struct serve_watched *w)
{
    wnw_bridge_layer l;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++)
        if (get_layer(w, i, &l) && l.n_readers > 1)
            return true;
    return false;
}

static uint64_t row_of(const wnw_bridge_layer *l)
{
    return (uint64_t)l->n_heads * (uint64_t)l->entry_bytes;
}

/* Bytes at most that a layer maps in addition to its entries, in a cache that is tight. A layer that slides is counted with all its cells. */
static uint64_t rounding_of(const struct serve_watched *w, const wnw_bridge_layer *l)
{
    const uint64_t pages = 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    return pages + (slides(w, l) ? 0 : (uint64_t)l->n_streams * row_of(l) * (uint64_t)(l->room_entries - 1));
}

static void add_cached(const struct serve_watched *w, struct serve_cached *to)
{
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!get_layer(w, i, &l))
            continue;
        to->bytes += l.bytes;
        to->window_bytes += slides(w, &l) ? l.bytes : 0;
    }
}

uint64_t serve_watched_bytes_with(const struct serve_watched *w, int32_t n)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!get_layer(w, i, &l))
            continue;
        const int64_t most = l.n_cells - l.n_entries / l.n_heads;
        const uint64_t more = row_of(&l) * (uint64_t)(slides(w, &l) && most < n ? most : n),
                       then = (uint64_t)l.n_entries * (uint64_t)l.entry_bytes + more + rounding_of(w, &l);
        bytes += then > l.bytes ? then : l.bytes;
    }
    return bytes;
}

/* Numbers in the queries of one token. Layers with windows keep none. */
static uint64_t query_numbers(const struct serve_watched *w)
{
    uint64_t n = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        n += get_layer(w, i, &l) && !l.sliding ? (uint64_t)l.query_numbers : 0;
    }
    return n;
}

/* Entries that a head has of marked cells. */
static int64_t count_marked(const struct serve_watched *w, int32_t layer, int32_t head)
{
    int32_t n = 0, *cells;
    int64_t found = 0;
    if (wnw_bridge_cells(w->cache, layer, 0, head, NULL, 0, &n) != WNW_OK ||
        !(cells = malloc(((size_t)n + 1) * sizeof *cells)))
        return 0;
    if (wnw_bridge_cells(w->cache, layer, 0, head, cells, n, &n) == WNW_OK)
        for (int32_t k = 0; k < n; k++)
            found += w->marked[cells[k]];
    free(cells);
    return found;
}

int32_t serve_watched_n(const struct serve_watched *w)
{
    return w->n_slots + serve_documents_n() + serve_joins_n();
}

int32_t serve_watched_document(const struct serve_watched *w, int32_t document_plus_1)
{
    if (!serve_document_is_join(document_plus_1 - 1))
        return w->n_slots + document_plus_1 - 1;
    for (int32_t i = 0; i < SERVE_MAX_JOINS; i++)
        if (w->joined[i] == document_plus_1)
            return w->n_slots + serve_documents_n() + i;
    return -1;
}

void serve_watched_count(struct serve_watched *w, int32_t seq)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    w->slot_cache[seq].entries = 0;
    for (int32_t k = 0; k < q->n; k++)
        w->marked[q->cell[k]] = true;
    for (int32_t i = 0; q->n > 0 && i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!serve_watched_whole_layer(w, i, &l))
            continue;
        /* Layers with windows keep each token (--swa-full), in cells of their own. */
        for (int32_t ih = 0; ih < l.n_heads; ih++)
            w->slot_cache[seq].entries += l.sliding ? q->n : count_marked(w, i, ih);
    }
    for (int32_t k = 0; k < q->n; k++)
        w->marked[q->cell[k]] = false;
}

void serve_watched_tell(struct serve_watched *w, bool compressed_one, bool failed_one)
{
    int64_t n = w->sequences.n_live;
    for (int32_t i = 0; i < w->n_slots; i++)
        n += w->slot_cache[i].n_unknown > 0 && w->sequences.of[i].n == 0 ? w->slot_cache[i].n_unknown : 0;
    struct serve_cached now = {.n_tokens = n};
    add_cached(w, &now);
    serve_slots_count(compressed_one, failed_one, &now);
    serve_slots_set_query_numbers(query_numbers(w));
}

void serve_watched_report(struct serve_watched *w, int32_t seq)
{
    const struct serve_slot_cache *s = &w->slot_cache[seq];
    if (seq >= w->n_slots) {
        if (w->sequences.of[seq].n > 0)
            serve_document_kept(seq - w->n_slots, s->entries, &s->by);
        return;
    }
    serve_slots_report(seq, &(struct serve_content){.n_tokens = w->sequences.of[seq].n + s->n_unknown,
                                                    .entries = s->entries,
                                                    .document_plus_1 = s->document_plus_1,
                                                    .reading = s->reading,
                                                    .unnoted = s->unnoted,
                                                    .of_list = s->of_list,
                                                    .n_removed = serve_watched_removed(w, seq),
                                                    .compressed_by = s->compressed ? &s->by : NULL});
}

bool serve_watched_lose(struct serve_watched *w, int32_t seq, int32_t n)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    const bool had_more = s->n_unknown > n;
    s->n_unknown = had_more ? n : s->n_unknown;
    w->dead_cells_unknown = w->dead_cells_unknown || had_more;
    return had_more;
}

static int32_t *copy_of(const int32_t *x, int32_t n)
{
    int32_t *copy = x && n > 0 ? malloc((size_t)n * sizeof *x) : NULL;
    if (copy)
        memcpy(copy, x, (size_t)n * sizeof *x);
    return copy;
}

bool serve_watched_restored(struct serve_watched *w, int32_t seq, const int32_t *ids, const int32_t *at,
                            int32_t n)
{
    struct serve_restored *r = &w->restored[seq];
    const struct serve_restored new = {.token = copy_of(ids, n), .at = copy_of(at, n), .n = n};
    const bool good = n == 0 || (new.token && (new.at || !at));
    free(r->token);
    free(r->at);
    free(r->free);
    *r = good ? new : (struct serve_restored){0};
    if (!good) {
        free(new.token);
        free(new.at);
    }
    return good;
}

bool serve_watched_has_unknown(const struct serve_watched *w)
{
    for (int32_t i = 0; i < w->n_slots; i++)
        if (w->slot_cache[i].n_unknown > 0 && w->sequences.of[i].n == 0)
            return true;
    return false;
}

void serve_watched_mark_held(const struct serve_watched *w, bool *held, int32_t *cells)
{
    int32_t n;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!serve_watched_whole_layer(w, i, &l))
            continue;
        for (int32_t ih = 0; ih < l.n_heads; ih++) {
            if (wnw_bridge_cells(w->cache, i, 0, ih, cells, l.n_cells, &n) != WNW_OK)
                continue;
            for (int32_t e = 0; e < n; e++)
                held[cells[e]] = true;
        }
    }
}

/* Tokens of the slots but this one whose cells nobody has learnt. */
static int32_t n_unknown_but(const struct serve_watched *w, int32_t seq)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_slots; i++)
        n += i != seq ? w->slot_cache[i].n_unknown : 0;
    return n;
}

/* Takes the cells of n such tokens from those that no known token has: they hold entries. False: these are not n cells, or there is no memory. */
static bool take_unknown(const struct serve_watched *w, bool *is_free, int32_t n)
{
    const size_t n_cells = (size_t)w->sequences.n_cells;
    bool *held = calloc(n_cells + 1, sizeof *held);
    int32_t *cells = malloc((n_cells + 1) * sizeof *cells);
    const bool good = held && cells;
    if (good)
        serve_watched_mark_held(w, held, cells);
    for (size_t k = 0; good && k < n_cells; k++)
        if (held[k] && is_free[k]) {
            is_free[k] = false;
            n--;
        }
    free(held);
    free(cells);
    return good && n == 0;
}

void serve_watched_note_free(struct serve_watched *w, int32_t seq)
{
    struct serve_restored *r = &w->restored[seq];
    const int32_t n_unknown = n_unknown_but(w, seq);
    free(r->free);
    r->free = malloc(((size_t)w->sequences.n_cells + 1) * sizeof *r->free);
    for (int32_t k = 0; r->free && k < w->sequences.n_cells; k++)
        r->free[k] = w->sequences.owners[k] == 0;
    if (r->free && n_unknown > 0 && !take_unknown(w, r->free, n_unknown)) {
        free(r->free);
        r->free = NULL;
    }
}

void serve_watched_copy_restored(struct serve_watched *w, int32_t from, int32_t to)
{
    const struct serve_restored *r = &w->restored[from];
    const size_t n = (size_t)w->sequences.n_cells * sizeof *r->free;
    (void)serve_watched_restored(w, to, r->token, r->at, r->n);
    w->restored[to].free = r->free ? malloc(n + 1) : NULL;
    if (w->restored[to].free)
        memcpy(w->restored[to].free, r->free, n);
}

int32_t serve_watched_at(const struct serve_watched *w, int32_t seq, int32_t k)
{
    const int32_t n_unknown = w->slot_cache[seq].n_unknown;
    if (k >= n_unknown)
        return w->sequences.of[seq].at[k - n_unknown];
    return w->restored[seq].at && k < w->restored[seq].n ? w->restored[seq].at[k] : k;
}

int32_t serve_watched_removed(const struct serve_watched *w, int32_t seq)
{
    const int32_t n_unknown = w->slot_cache[seq].n_unknown;
    if (w->sequences.of[seq].n > 0 || n_unknown == 0)
        return serve_sequences_removed(&w->sequences, seq);
    return serve_watched_at(w, seq, n_unknown - 1) - (n_unknown - 1);
}

int32_t serve_watched_counted(const struct serve_watched *w, int32_t seq)
{
    return w->sequences.of[seq].n + w->slot_cache[seq].n_unknown + serve_watched_removed(w, seq);
}

/* Marks the cells of a head that no sequence has. */
static void mark_strays(struct serve_watched *w, int32_t layer, int32_t head, int32_t *cells)
{
    int32_t n = 0;
    if (wnw_bridge_cells(w->cache, layer, 0, head, cells, w->sequences.n_cells, &n) == WNW_OK)
        for (int32_t k = 0; k < n; k++)
            w->marked[cells[k]] = w->marked[cells[k]] || w->sequences.owners[cells[k]] == 0;
}

/* Once no cells but those of the dead are unknown, they are those that no sequence has. */
static void bury_strays(struct serve_watched *w)
{
    int32_t *cells, n = 0;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        if (w->slot_cache[seq].n_unknown > 0)
            return;
    if (!(cells = malloc((size_t)w->sequences.n_cells * sizeof *cells)))
        return;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (serve_watched_whole_layer(w, i, &l))
            for (int32_t ih = 0; ih < l.n_heads; ih++)
                mark_strays(w, i, ih, cells);
    }
    for (int32_t i = 0; i < w->sequences.n_cells; i++) {
        cells[n] = i;
        n += w->marked[i];
        w->marked[i] = false;
    }
    if (wnw_bridge_forget(w->cache, cells, n) != WNW_OK)
        fprintf(stderr, "winnow: %s\n", wnw_last_error());
    w->dead_cells_unknown = false;
    free(cells);
}

void serve_watched_bury(struct serve_watched *w)
{
    if (w->dead_cells_unknown)
        bury_strays(w);
    if (w->sequences.n_dead > 0 &&
        wnw_bridge_forget(w->cache, w->sequences.dead, w->sequences.n_dead) != WNW_OK)
        fprintf(stderr, "winnow: %s\n", wnw_last_error());
    w->sequences.n_dead = 0;
}

/* ---- Contexts ---- */

static int32_t most_cells(const struct serve_watched *w)
{
    int32_t most = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (get_layer(w, i, &l) && l.n_cells > most)
            most = l.n_cells;
    }
    return most;
}

static struct serve_room room_of(const struct serve_watched *w)
{
    struct serve_room room = {0};
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!get_layer(w, i, &l))
            continue;
        const bool window = slides(w, &l);
        room.window_bytes += window ? row_of(&l) * (uint64_t)l.n_cells : 0;
        room.row_bytes += window ? 0 : row_of(&l);
        room.uncut_bytes += !window && l.sliding ? row_of(&l) : 0;
        room.row_entries += window ? 0 : l.n_heads;
        room.rounding_bytes += rounding_of(w, &l);
    }
    return room;
}

/* Bytes of a text that may have room in n cells. A token of these vocabularies is a piece of its text; of others one token may be a word that
 * is not known, of any length. */
static uint64_t most_text(const struct llama_vocab *vocab, int32_t n)
{
    const enum llama_vocab_type type = llama_vocab_type(vocab);
    size_t longest = 16;
    if (type != LLAMA_VOCAB_TYPE_BPE && type != LLAMA_VOCAB_TYPE_SPM)
        return UINT64_MAX;
    for (int32_t i = 0; i < llama_vocab_n_tokens(vocab); i++) {
        const char *text = llama_vocab_get_text(vocab, i);
        const size_t bytes = text ? strlen(text) : 0;
        longest = bytes > longest ? bytes : longest;
    }
    return (uint64_t)n * longest;
}

/* The cache is on the device, and the backend leaves it to libllama. */
static void refuse_plain(const struct serve_watched *w) __attribute__((noreturn));
static void refuse_plain(const struct serve_watched *w)
{
    if (w->type_k == GGML_TYPE_F32 || w->type_v == GGML_TYPE_F32)
        serve_refuse_input(
            "keys and values of f32 stay as libllama has them, which makes f16 of them for flash "
            "attention: take another type (-ctk f16 -ctv f16), or no flash attention (-fa off)");
    if (w->no_flash)
        serve_refuse_input(
            "without flash attention the keys and values stay as libllama has them here, and nothing "
            "can be removed: leave out -fa off");
    serve_refuse(
        "the keys and values of this model stay as libllama has them, because something reads them that "
        "is not known, or their device lacks an operation: WINNOW_VERBOSE=1 says what, and llama.cpp's "
        "own llama-server serves the model");
}

static bool open_sequences(struct serve_watched *w)
{
    const int32_t n_cells = most_cells(w);
    w->n_slots = (int32_t)llama_n_seq_max(w->ctx) - serve_documents_n() - serve_joins_n();
    if (w->n_slots > SERVE_MAX_SLOTS)
        serve_refuse("a server of winnow has 64 slots at most");
    if (!llama_get_memory(w->ctx) || llama_model_is_recurrent(llama_get_model(w->ctx)))
        serve_refuse(
            "the model has no cache of keys and values, of which a part could be kept: llama.cpp's own "
            "llama-server serves it");
    if (n_cells == 0 && wnw_bridge_n_layers(w->cache) > 0)
        refuse_plain(w);
    if (n_cells == 0)
        serve_refuse(
            "none of the model's keys and values is on the device WINNOW: `winnow serve` sets -dev WINNOW "
            "-ngl 99, and a model without any is served by llama.cpp's own llama-server");
    w->unmatched =
        llama_model_is_hybrid(llama_get_model(w->ctx)) || llama_model_is_recurrent(llama_get_model(w->ctx));
    w->feeds = !w->unmatched; /* states of recurrent layers cannot go back */
    w->marked = calloc((size_t)n_cells, sizeof *w->marked);
    if (!w->marked || !serve_sequences_init(&w->sequences, serve_watched_n(w), n_cells))
        return false;
    struct serve_room room = room_of(w);
    room.n_cells = n_cells;
    room.n_batch = (int32_t)llama_n_batch(w->ctx);
    room.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(w->ctx)));
    room.most_text = most_text(llama_model_get_vocab(llama_get_model(w->ctx)), n_cells);
    w->row_entries = room.row_entries;
    serve_slots_open(w->n_slots, &room, !w->unmatched);
    return true;
}

/* ---- What is observed ---- */

static int observe_row(const char *recipe, const wnw_policy_choice *row, void *user)
{
    (void)row;
    return wnw_bridge_observe(user, recipe);
}

static int observe(const struct serve_watched *w, const struct serve_keep_rule *keep_rule)
{
    if (serve_keeps_all(keep_rule))
        return WNW_OK;
    if (!serve_is_automatic(keep_rule))
        return wnw_bridge_observe(w->cache, keep_rule->recipe);
    return serve_automatic_each(keep_rule, w->feeds, observe_row, w->cache);
}

/* What parking compresses whole slots by (--park-ratio), and what makes room. */
static int observe_parked(const struct serve_watched *w)
{
    return serve_settings()->park_ratio > 0.0 || serve_settings()->makes_room
               ? wnw_bridge_observe(w->cache, SERVE_FALLBACK)
               : WNW_OK;
}

static bool holds(const struct serve_watched *w, int32_t seq)
{
    return w->sequences.of[seq].n + w->slot_cache[seq].n_unknown > 0;
}

/* Whether what a slot's rule needs is wanted now. What a slot without a request holds by the server's own rule may be gone on with; what
 * it holds by another one would be read again. */
static bool asks(const struct serve_watched *w, int32_t seq)
{
    if (!*w->rule[seq].keep_rule.recipe) /* it has read nothing yet */
        return false;
    return serve_slots_is_claimed(seq) || (holds(w, seq) && !w->slot_cache[seq].unnoted &&
                                           serve_same_recipe(&w->rule[seq].keep_rule, &w->least));
}

/* Records that no request will continue from what slots hold under rules that nobody asks for any more. */
static void give_up(struct serve_watched *w)
{
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        if (holds(w, seq) && !asks(w, seq) && !w->slot_cache[seq].unnoted) {
            w->slot_cache[seq].unnoted = true;
            serve_watched_report(w, seq);
        }
}

void serve_watched_observe(struct serve_watched *w)
{
    uint32_t needs = w->least.needs;
    bool reading = false;
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        needs |= asks(w, seq) ? w->rule[seq].keep_rule.needs : 0;
        reading = reading || w->slot_cache[seq].reading;
    }
    if (reading)
        needs |= w->observed;
    if (needs == w->observed)
        return;
    if (!reading) {
        give_up(w);
        (void)wnw_bridge_unobserve(w->cache);
    }
    w->observed = needs;
    int rc = observe(w, &w->least);
    if (rc == WNW_OK)
        rc = observe_parked(w);
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        rc = rc == WNW_OK && asks(w, seq) ? observe(w, &w->rule[seq].keep_rule) : rc;
        if (rc != WNW_OK)
            fprintf(stderr, "winnow: slot %d: %s\n", (int)seq, wnw_last_error());
        rc = WNW_OK;
    }
}

/* ---- Contexts ---- */

void serve_watch(struct serve_watched *w, struct llama_context *ctx, wnw_bridge_rows on_rows)
{
    const struct serve_keep_rule *keep_rule = &serve_settings()->keep_rule;
    if (wnw_bridge_find(&w->cache, llama_synchronize, ctx) != WNW_OK)
        serve_refuse(wnw_last_error());
    w->ctx = ctx;
    if (!open_sequences(w))
        serve_refuse("no memory for the sequences of the slots");
    if (serve_settings()->cap > 0 && wnw_bridge_set_tight(w->cache, true) != WNW_OK)
        serve_refuse(wnw_last_error());
    if (wnw_bridge_set_profiles(w->cache, serve_settings()->profiles) != WNW_OK ||
        wnw_policy_parse(&w->fallback, SERVE_FALLBACK, NULL) != WNW_OK)
        serve_refuse(wnw_last_error());
    if (w->unmatched && serve_asks_quality(keep_rule))
        serve_refuse_input(
            "no quality can be kept of a model with recurrent layers: give a size in its place");
    if (w->unmatched && strcmp(serve_policy_of_all(false), keep_rule->recipe) != 0)
        fprintf(stderr, "winnow: %s is taken in place of %s, because the model has recurrent layers\n",
                serve_policy_of_all(false), keep_rule->recipe);
    const char *of_all = serve_keeps_all(keep_rule) ? NULL : serve_policy_of_all(false);
    int rc = w->unmatched ? wnw_bridge_set_policy(w->cache, of_all, &keep_rule->size, true)
                          : wnw_bridge_tell_rows(w->cache, on_rows, w);
    /* What "auto" needs more of for longer prompts is observed once one comes. */
    w->least = *keep_rule;
    w->least.n_most = 1;
    if (rc == WNW_OK && !w->unmatched)
        rc = serve_automatic_settle(&w->least);
    w->observed = w->least.needs;
    if (rc == WNW_OK && !w->unmatched)
        rc = observe(w, &w->least);
    if (rc == WNW_OK && !w->unmatched)
        rc = observe_parked(w);
    if (w->feeds)
        serve_print_fed();
    if (rc != WNW_OK)
        serve_refuse(wnw_last_error());
}

void serve_watched_drop_sample(struct serve_watched *w, int32_t seq)
{
    wnw_bridge_sample_free(w->sample[seq]);
    w->sample[seq] = NULL;
}

void serve_unwatch(struct serve_watched *w)
{
    w->ctx = NULL;
    w->cache = NULL;
    serve_sequences_free(&w->sequences);
    memset(w->slot_cache, 0, sizeof w->slot_cache);
    memset(w->joined, 0, sizeof w->joined);
    for (int32_t i = 0; i < SERVE_MAX_SLOTS; i++) {
        serve_watched_drop_sample(w, i);
        (void)serve_watched_restored(w, i, NULL, NULL, 0);
        free(w->said[i].token);
        w->said[i] = (struct serve_said){0};
        wnw_policy_free(w->rule[i].policy);
    }
    memset(w->rule, 0, sizeof w->rule);
    wnw_policy_free(w->fallback);
    w->fallback = NULL;
    free(w->marked);
    w->marked = NULL;
    serve_slot_read_clear(&w->reading);
}
