/* SPDX-License-Identifier: MIT */
#include "serve/join_cells.h"

#include "serve/join_room.h"
#include "serve/libllama_real.h"
#include "serve/slot_save.h"
#include "serve/stretch.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>

/* ---- Whether ---- */

const char *serve_join_cells_refused(const struct serve_watched *w)
{
    if (llama_model_rope_type(llama_get_model(w->ctx)) == LLAMA_ROPE_TYPE_NONE)
        return "the model has no rotary positions, and what was read at one place cannot be used at another";
    return serve_stretch_why_fixed(w);
}

/* ---- Sequences ---- */

static bool cut(struct serve_watched *w, int32_t seq, int32_t from, int32_t to)
{
    if (!REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, from, to))
        return false;
    serve_sequences_rm(&w->sequences, seq, from, to);
    return true;
}

static bool copy(struct serve_watched *w, int32_t from, int32_t to, int32_t p0, int32_t p1)
{
    REAL(llama_memory_seq_cp)(llama_get_memory(w->ctx), from, to, p0, p1);
    return serve_sequences_cp(&w->sequences, from, to, p0, p1);
}

/* ---- Making ---- */

/* Computes n tokens at positions of a slot from `at` on. */
static bool compute(struct serve_watched *w, int32_t seq, const int32_t *ids, int32_t at, int32_t n)
{
    struct llama_batch_ext *batch = llama_batch_ext_init(w->ctx);
    struct serve_batch rows = {0};
    bool good = batch != NULL;
    for (int32_t k = 0; good && k < n; k++) {
        const llama_pos pos = at + k;
        good = REAL(llama_batch_ext_add_token)(batch, seq, ids[k]) == k &&
               REAL(llama_batch_ext_set_pos)(batch, k, &pos);
        serve_batch_add(&rows, k, seq, ids[k]);
        good = good && rows.n == k + 1;
        if (good)
            rows.row[k].pos = rows.row[k].at = pos;
    }
    w->rule[seq].notes = false; /* what is kept of them was decided */
    w->running = &rows;
    w->at = 0;
    good = good && REAL(llama_process)(w->ctx, LLAMA_PROCESS_TYPE_DECODE, batch) == 0;
    w->running = NULL;
    llama_synchronize(w->ctx);
    if (batch)
        REAL(llama_batch_ext_free)(batch);
    free(rows.row);
    return good;
}

/* Computes tokens ids[from .. to) at their positions in a slot. */
static bool read(struct serve_watched *w, int32_t seq, const int32_t *ids, int32_t from, int32_t to)
{
    const int32_t most = (int32_t)llama_n_batch(w->ctx);
    bool good = true;
    for (int32_t i = from; good && i < to; i += most) {
        const int32_t n = to - i < most ? to - i : most;
        good = serve_join_make_way(w, n) && compute(w, seq, ids + i, i, n);
    }
    return good;
}

/* Sets cells[n] to those of a slot that nobody has counted, ascending: a token after them sees them. It is removed again. */
static bool see(struct serve_watched *w, int32_t seq, int32_t end, int32_t *cells, int32_t n)
{
    struct serve_seen seen = {.cells = malloc(((size_t)w->sequences.n_cells + 1) * sizeof *seen.cells)};
    const int32_t token = 0;
    int32_t k = 0;
    w->seen = seen.cells ? &seen : NULL;
    bool good = seen.cells && compute(w, seq, &token, end, 1) && seen.n == n + 1;
    w->seen = NULL;
    for (int32_t i = 0; good && i < seen.n && k < n; i++)
        if (seen.cells[i] != seen.own)
            cells[k++] = seen.cells[i];
    free(seen.cells);
    return cut(w, seq, end, -1) && good && k == n;
}

/* Learns the cells of a slot of n tokens whose state was set. libllama takes free cells in their order, from some cell on and then from the
 * first. So the cell of the first token, which is removed, says the others. */
static bool learn(struct serve_watched *w, int32_t seq, const int32_t *ids, int32_t n)
{
    int32_t *cells = malloc(2 * ((size_t)n + 1) * sizeof *cells), *rest = cells + n + 1, first = 0;
    bool good = cells && see(w, seq, n, cells, n) &&
                REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, 0, 1) && see(w, seq, n, rest, n - 1);
    while (good && first < n - 1 && cells[first] == rest[first])
        first++;
    for (int32_t k = 1; good && k < n; k++)
        good = serve_sequences_add(&w->sequences, seq, k, cells[(first + k) % n], ids[k]);
    free(cells);
    return good;
}

/* Puts a copy of a document but for its first token, in cells of its own, into a slot. */
static bool put_copy(struct serve_watched *w, int32_t seq, int32_t d)
{
    const struct serve_sequence *q = &w->sequences.of[w->n_slots + d];
    uint8_t *state = NULL;
    uint64_t n = 0;
    const bool good = serve_join_clear(w, seq) && serve_join_make_way(w, q->n + 1) &&
                      serve_saved_state(&state, &n, w, w->n_slots + d) == WNW_OK &&
                      llama_state_seq_set_data(w->ctx, state, n, seq) > 0 && learn(w, seq, q->token, q->n);
    free(state);
    return good;
}

/* Takes what a part has of its document to its place in the sequence `to`, by way of a slot. */
static bool take_part(struct serve_watched *w, int32_t seq, int32_t to, int32_t d,
                      const struct app_join_part *part)
{
    const int32_t end = part->from + part->n, by = part->at - part->from;
    if (part->n == 0)
        return true;
    if (!put_copy(w, seq, d) || !cut(w, seq, 0, part->from) || !cut(w, seq, end, -1))
        return false;
    REAL(llama_memory_seq_add)(llama_get_memory(w->ctx), seq, part->from, end, by);
    serve_sequences_shift(&w->sequences, seq, part->from, end, by);
    return copy(w, seq, to, -1, -1) && serve_join_clear(w, seq);
}

/* Fills a sequence with the parts of a list. Later documents first, because a slot is needed for each. */
static bool fill(struct serve_watched *w, int32_t seq, int32_t to, int32_t d)
{
    const struct app_join_part *parts = serve_join_parts(d);
    int32_t n, n_ids;
    const int32_t *documents = serve_join_documents(d, &n), *ids = serve_document_tokens(d, &n_ids);
    bool good = serve_join_clear(w, seq);
    for (int32_t i = 1; good && i < n; i++)
        good = take_part(w, seq, to, documents[i], &parts[i]);
    good = good && copy(w, w->n_slots + documents[0], seq, 0, parts[0].n);
    for (int32_t i = 1, end = parts[0].n; good && i < n; i++) {
        good = read(w, seq, ids, end, parts[i].at) &&
               (parts[i].n == 0 || copy(w, to, seq, parts[i].at, parts[i].at + parts[i].n));
        end = parts[i].at + parts[i].n;
    }
    return good && cut(w, to, -1, -1) && copy(w, seq, to, -1, -1) && w->sequences.of[to].n == n_ids;
}

static void note(struct serve_watched *w, int32_t seq, int32_t to, int32_t d)
{
    const struct app_join_part *parts = serve_join_parts(d);
    int32_t n, n_moved = 0;
    const int32_t *documents = serve_join_documents(d, &n);
    struct serve_slot_cache *s = &w->slot_cache[to];
    *s = (struct serve_slot_cache){.by = w->slot_cache[w->n_slots + documents[0]].by};
    for (int32_t i = 0; i < n; i++) {
        s->compressed = s->compressed || w->slot_cache[w->n_slots + documents[i]].compressed;
        n_moved += i > 0 ? parts[i].n : 0;
    }
    serve_watched_count(w, to);
    fprintf(stderr, "winnow: slot %d: %d documents joined: %d tokens read, %d moved\n", (int)seq, (int)n,
            (int)(w->sequences.of[to].n - parts[0].n - n_moved), (int)n_moved);
    serve_document_kept(d, s->entries, &s->by);
}

bool serve_join_cells_make(struct serve_watched *w, int32_t seq, int32_t d)
{
    const int32_t place = serve_join_place(d), to = serve_join_sequence(w, place);
    if (w->joined[place] == d + 1)
        return serve_join_clear(w, seq);
    serve_join_empty(w, place);
    bool good = fill(w, seq, to, d);
    if (!good) { /* lists that no request begins with now may leave their room */
        for (int32_t i = 0; i < SERVE_MAX_JOINS; i++)
            serve_join_empty(w, i);
        good = fill(w, seq, to, d);
    }
    if (good) {
        note(w, seq, to, d);
        w->joined[place] = d + 1;
    } else {
        fprintf(stderr,
                "winnow: slot %d: the documents cannot be joined now: the cache has no room for them\n",
                (int)seq);
        (void)serve_join_clear(w, to);
    }
    return serve_join_clear(w, seq) && good;
}
