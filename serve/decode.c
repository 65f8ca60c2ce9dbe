/* SPDX-License-Identifier: MIT */
#include "serve/decode.h"

#include "serve/automatic.h"
#include "serve/breaks.h"
#include "serve/compress.h"
#include "serve/document_cells.h"
#include "serve/give_up.h"
#include "serve/join_room.h"
#include "serve/sample.h"
#include "serve/stretch.h"
#include "winnow_tools.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Before ---- */

/* Whether these rows belong to a prompt. A single row may be the prompt's last one, after others of it. */
static bool reads_prompt(const struct serve_watched *w, int32_t seq, const struct serve_rows *r)
{
    return r->n > 0 && (w->slot_cache[seq].reading || r->n_silent > 0);
}

/* Switches a slot to another recipe. */
static void follow(struct serve_watched *w, int32_t seq, const struct serve_keep_rule *keep_rule)
{
    struct serve_rule *rule = &w->rule[seq];
    wnw_policy_free(rule->policy);
    rule->policy = NULL;
    if (!serve_keeps_all(keep_rule) && !serve_is_automatic(keep_rule) &&
        wnw_policy_parse(&rule->policy, keep_rule->recipe, NULL) != WNW_OK)
        fprintf(stderr, "winnow: slot %d: %s\n", (int)seq, wnw_last_error());
}

/* Begins what is new. Requests that ask for what the one before them asked for parse nothing here. */
static void begin(struct serve_watched *w, int32_t seq, const struct serve_keep_rule *keep_rule)
{
    struct serve_rule *rule = &w->rule[seq];
    if (!serve_same_recipe(&rule->keep_rule, keep_rule))
        follow(w, seq, keep_rule);
    rule->keep_rule = *keep_rule;
    rule->asks = serve_looks_with_queries(keep_rule) && strcmp(keep_rule->recipe, w->cannot) != 0;
}

/* Whether rows are of no request and of a prompt that ends before it could be compressed, as those by which the server warms up:
 * for these nothing need be observed. */
static bool is_warmup(const struct serve_watched *w, int32_t seq, const struct serve_rows *r)
{
    return !serve_slots_is_claimed(seq) && r->ends && w->sequences.of[seq].n + r->n < WNW_TURNS_LEAST_NEW;
}

void serve_decode_begin(struct serve_watched *w, const struct serve_batch *b)
{
    struct serve_keep_rule keep_rule;
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        const struct serve_rows r = serve_batch_rows_of(b, seq);
        if (r.n > 0 && !is_warmup(w, seq, &r) && serve_slots_keep_rule(seq, w->copied[seq], &keep_rule))
            begin(w, seq, &keep_rule);
        w->rule[seq].notes = w->rule[seq].asks && reads_prompt(w, seq, &r);
        w->slot_cache[seq].unnoted = w->slot_cache[seq].unnoted && w->sequences.of[seq].n > 0;
    }
    serve_watched_observe(w);
    while (!serve_join_make_way(w, b->n) && serve_give_up_slot(w, b))
        continue;
    serve_give_up_slots(w, b, serve_stretch_in_way(w, b));
    serve_stretch_make(w, b);
    while (serve_stretch_lacks(w, b) && serve_give_up_slot(w, b))
        continue;
    if (serve_stretch_lacks(w, b))
        serve_stretch_longest(w);
    serve_sample_feed(w, b);
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        w->n_before[seq] = w->sequences.of[seq].n;
    w->running = b;
    w->at = 0;
}

/* ---- While a batch runs ---- */

/* Finds the cells of a sequence that was restored from a file: those that its first row sees, without its own. If they do not say the order of
 * the tokens, the sequence is not compressed. */
static void learn(struct serve_watched *w, int32_t seq, int32_t row, int32_t own, int32_t pos)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    int32_t n = 0, *cells = malloc(((size_t)w->sequences.n_cells + 1) * sizeof *cells);
    if (cells && wnw_bridge_seen(w->cache, row, cells, w->sequences.n_cells, &n) == WNW_OK && n == pos + 1) {
        int32_t k = 0;
        for (int32_t i = 0; i < n; i++)
            if (cells[i] != own)
                cells[k++] = cells[i];
        if (k == pos && serve_sequences_order(w->restored[seq].free, w->sequences.n_cells, cells, k)) {
            const struct serve_restored *r = &w->restored[seq];
            for (int32_t i = 0; i < k; i++)
                if (serve_sequences_add(&w->sequences, seq, i, cells[i], i < r->n ? r->token[i] : -1))
                    w->sequences.of[seq].at[w->sequences.of[seq].n - 1] = serve_watched_at(w, seq, i);
            (void)serve_watched_restored(w, seq, NULL, NULL, 0);
            s->n_unknown = 0;
            s->recount = true;
        }
    }
    free(cells);
}

static void see(struct serve_watched *w, int32_t row, int32_t own)
{
    w->seen->own = own;
    if (wnw_bridge_seen(w->cache, row, w->seen->cells, w->sequences.n_cells, &w->seen->n) != WNW_OK)
        w->seen->n = 0;
}

void serve_decode_rows(const int32_t *cells, int32_t n, int32_t n_cells, void *user)
{
    struct serve_watched *w = user;
    (void)n_cells;
    for (int32_t i = 0; w->running && i < n && w->at < w->running->n; i++, w->at++) {
        const struct serve_row *row = &w->running->row[w->at];
        if (w->seen && w->at == 0)
            see(w, i, cells[i]);
        bool noted = w->feeding;
        for (int32_t seq = 0; seq < w->n_slots; seq++)
            if (row->seqs >> seq & 1) {
                if (w->slot_cache[seq].n_unknown > 0 && w->sequences.of[seq].n == 0)
                    learn(w, seq, i, cells[i], row->pos);
                if (serve_sequences_add(&w->sequences, seq, row->pos, cells[i], row->token))
                    w->sequences.of[seq].at[w->sequences.of[seq].n - 1] = row->at;
                (void)serve_stretch_say(w, seq, row->at, &row->token, 1);
                noted = noted || w->rule[seq].notes;
            }
        if (!noted)
            wnw_bridge_skip_query(w->cache, i);
    }
}

/* ---- After ---- */

/* Compresses a prompt whose last row was computed, before its first token is sampled from the logits that are there: so the time goes to that of
 * the prompt, and the tokens come evenly. */
static void finish_prompt(struct serve_watched *w, int32_t seq)
{
    const int32_t stores = serve_slots_stores(seq);
    char line[SERVE_TEXT];
    llama_synchronize(w->ctx);
    const bool good = serve_compress(w, seq);
    serve_watched_drop_sample(w, seq);
    if (w->rule[seq].asks) /* what was too short keeps none either */
        wnw_bridge_forget_queries(w->cache, w->sequences.of[seq].cell, w->sequences.of[seq].n);
    if (stores > 0 && !good) {
        snprintf(line, sizeof line, "document %s cannot be compressed: %s", serve_document_name(stores - 1),
                 wnw_last_error());
        serve_refuse(line);
    }
    if (stores > 0)
        serve_document_cells_keep(w, seq, stores - 1);
}

/* Compresses the part of a prompt that was read, by rules that can do that before its end. */
static void compress_chunk(struct serve_watched *w, int32_t seq)
{
    const struct serve_rule *rule = &w->rule[seq];
    if (!wnw_turns_is_due(w->slot_cache[seq].n_new, rule->keep_rule.chunk, false))
        return;
    llama_synchronize(w->ctx);
    (void)serve_compress(w, seq);
    if (rule->asks)
        wnw_bridge_forget_queries(w->cache, w->sequences.of[seq].cell, w->sequences.of[seq].n);
}

/* Adds the entries that the batch has brought. */
static void add_entries(struct serve_watched *w, const struct serve_batch *b)
{
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        struct serve_slot_cache *s = &w->slot_cache[seq];
        s->entries += (int64_t)serve_batch_rows_of(b, seq).n * w->row_entries;
        if (s->recount)
            serve_watched_count(w, seq);
        s->recount = false;
    }
}

/* Notes what the batch has brought. Entries of all slots first: where one of them is compressed, all are counted. */
static void take(struct serve_watched *w, const struct serve_batch *b)
{
    add_entries(w, b);
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        struct serve_slot_cache *s = &w->slot_cache[seq];
        const struct serve_rows r = serve_batch_rows_of(b, seq);
        if (r.n == 0)
            continue;
        const bool reads = reads_prompt(w, seq, &r), ended = reads && r.ends;
        if (reads && !s->reading) {
            s->at_prompt = w->sequences.of[seq].n - r.n;
            w->breaks[seq].n_first = serve_batch_first_of(b, seq)->at;
        }
        s->n_new += r.n_silent + ended;
        s->reading = !r.ends;
        serve_watched_report(w, seq);
        if (ended) {
            serve_breaks_tell(w, seq, w->breaks[seq].n_first, serve_document_cells_shared(w, seq));
            finish_prompt(w, seq);
        } else if (reads) {
            compress_chunk(w, seq);
        } else { /* the last token of a prompt that was there as a whole is read alone */
            serve_breaks_tell_row(w, seq, serve_batch_first_of(b, seq)->at,
                                  serve_document_cells_shared(w, seq));
        }
    }
    serve_watched_tell(w, false, false);
}

void serve_decode_end(struct serve_watched *w, const struct serve_batch *b, bool good)
{
    w->running = NULL;
    if (good) {
        take(w, b);
        return;
    }
    /* libllama takes back the rows that it could not compute. */
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        serve_sequences_cut(&w->sequences, seq, w->n_before[seq]);
    serve_watched_bury(w);
}
