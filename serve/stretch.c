/* SPDX-License-Identifier: MIT */
#include "serve/stretch.h"

#include "serve/compress.h"
#include "serve/libllama_real.h"
#include "serve/restores.h"

#include <ggml.h>
#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest conversation, in contexts. The server allocates by it, so there must be an end. */
enum { TIMES = 100 };
/* First tokens that stay where nobody has said how long the header is: much attention goes to them. */
enum { LEAST_HEADER = 4 };
/* The most blocks in which tokens are removed, because libllama visits all cells for each. */
enum { MOST_BLOCKS = 4096 };

/* ---- Whether ---- */

/* libllama moves quantised keys only of heads of a multiple of 64 numbers. */
static bool moves_keys(const struct serve_watched *w, const struct llama_model *m)
{
    const int32_t n_head = llama_model_n_head(m);
    return !ggml_is_quantized((enum ggml_type)w->type_k) ||
           (n_head > 0 && llama_model_n_embd(m) / n_head % 64 == 0);
}

const char *serve_stretch_why_fixed(const struct serve_watched *w)
{
    const struct llama_model *m = llama_get_model(w->ctx);
    const enum llama_rope_type rope = llama_model_rope_type(m);
    if (w->unmatched)
        return "the model has recurrent layers, from which nothing can be removed";
    if (llama_model_n_swa(m) > 0)
        return "the model has layers with a sliding window, whose positions cannot be moved";
    if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE || serve_settings()->media)
        return "the server takes images or sounds, whose positions cannot be moved";
    if (!REAL(llama_memory_can_shift)(llama_get_memory(w->ctx)) || !moves_keys(w, m))
        return "positions in this cache cannot be moved; keys of another type (-ctk f16) may be";
    return NULL;
}

static const char *why_not(const struct serve_watched *w)
{
    if (!serve_settings()->makes_room)
        return "the server was started without it: winnow serve --when-full compress";
    if (!w->unmatched && serve_documents_n() > 0)
        return "the server has documents, whose cells are shared";
    return serve_stretch_why_fixed(w);
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

void serve_stretch_open(struct serve_watched *w)
{
    const char *why = why_not(w);
    /* Slots share the cells, and each has its own number of them: else one slot could leave another without any. */
    const int32_t n_train = REAL(llama_model_n_ctx_train)(llama_get_model(w->ctx)),
                  n_slot = (int32_t)llama_n_ctx(w->ctx) / w->n_slots,
                  most = least(least((int32_t)REAL(llama_n_ctx_seq)(w->ctx), n_slot), n_train);
    w->most = why ? 0 : most;
    serve_slots_set_most(w->most, serve_stretch_length(w), why);
    serve_restores_set_longest(serve_stretch_length(w));
}

void serve_stretch_close(struct serve_watched *w)
{
    if (w->most > 0)
        serve_slots_set_most(0, 0, "the server has a draft model, whose context ends where it did");
    w->most = 0;
    serve_restores_set_longest(0);
}

int32_t serve_stretch_length(const struct serve_watched *w)
{
    return w->most <= INT32_MAX / TIMES ? w->most * TIMES : INT32_MAX;
}

/* ---- What was said ---- */

bool serve_stretch_say(struct serve_watched *w, int32_t seq, int32_t at, const int32_t *ids, int32_t n)
{
    struct serve_said *s = &w->said[seq];
    if ((w->most == 0 && !w->unmatched) || n == 0)
        return true;
    if (at > s->n || at + n > s->room) {
        const int32_t room = at + n > s->room / 2 * 3 ? at + n + 256 : s->room / 2 * 3;
        int32_t *token = at <= s->n ? realloc(s->token, (size_t)room * sizeof *token) : NULL;
        if (!token) {
            s->n = 0; /* tokens are missing */
            return false;
        }
        s->token = token;
        s->room = room;
    }
    memcpy(s->token + at, ids, (size_t)n * sizeof *ids);
    s->n = at + n;
    return true;
}

const int32_t *serve_stretch_said(const struct serve_watched *w, int32_t seq, int32_t n)
{
    return n <= w->said[seq].n ? w->said[seq].token : NULL;
}

/* ---- Positions ---- */

int32_t serve_stretch_pos(const struct serve_watched *w, int32_t seq, int32_t at)
{
    /* Positions of a slot in the cache are 0, 1, 2 ... */
    const int32_t n = w->slot_cache[seq].n_unknown + w->sequences.of[seq].n;
    int32_t from = 0, to = n;
    if (w->most == 0 || at < 0 || n == 0)
        return at;
    while (from < to) {
        const int32_t k = from + (to - from) / 2;
        if (serve_watched_at(w, seq, k) < at)
            from = k + 1;
        else
            to = k;
    }
    return from;
}

static int32_t sequence_of(const struct serve_row *row)
{
    int32_t seq = 0;
    while (seq < SERVE_MAX_SLOTS - 1 && !(row->seqs >> seq & 1))
        seq++;
    return seq;
}

void serve_stretch_place(const struct serve_watched *w, struct serve_batch *b, struct llama_batch_ext *batch)
{
    int32_t n[SERVE_MAX_SLOTS] = {0};
    for (int32_t i = 0; w->most > 0 && i < b->n; i++) {
        struct serve_row *row = &b->row[i];
        const int32_t seq = sequence_of(row);
        const llama_pos pos = w->sequences.of[seq].n + w->slot_cache[seq].n_unknown + n[seq]++;
        if (pos != row->pos)
            REAL(llama_batch_ext_set_pos)(batch, i, &pos);
        row->pos = pos;
    }
}

/* ---- What goes ---- */

/* Tokens of a slot from which some go. They begin after the header. The last tokens of the slot follow them. */
struct middle {
    int32_t seq, from, to, n_kept;
};

struct block {
    int64_t n_entries;
    int32_t i;
};

static int by_entries(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->n_entries != y->n_entries)
        return x->n_entries < y->n_entries ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i; /* of equal ones the oldest goes first */
}

/* Counts for each token of the middle the heads that keep it. number, cells: [n_cells] scratch. False: the backend does not say it. */
static bool count(int32_t *n_heads, const struct serve_watched *w, const struct middle *m, int32_t *number,
                  int32_t *cells)
{
    const struct serve_sequence *q = &w->sequences.of[m->seq];
    for (int32_t i = 0; i < w->sequences.n_cells; i++)
        number[i] = -1;
    for (int32_t k = m->from; k < m->to; k++)
        number[q->cell[k]] = k - m->from;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!serve_watched_whole_layer(w, i, &l))
            continue;
        for (int32_t ih = 0; ih < l.n_heads; ih++) {
            int32_t n = 0;
            if (wnw_bridge_cells(w->cache, i, 0, ih, cells, w->sequences.n_cells, &n) != WNW_OK)
                return false;
            for (int32_t k = 0; k < n; k++)
                if (number[cells[k]] >= 0)
                    n_heads[number[cells[k]]]++;
        }
    }
    return true;
}

/* Marks the tokens that go: blocks with the fewest entries. Returns how many they are, -1 without memory. */
static int32_t choose(bool *goes, const struct middle *m, const int32_t *n_heads)
{
    const int32_t n = m->to - m->from, size = 1 + (n - 1) / MOST_BLOCKS, n_blocks = (n + size - 1) / size;
    struct block *blocks = calloc((size_t)n_blocks, sizeof *blocks);
    int32_t n_gone = 0;
    if (!blocks)
        return -1;
    for (int32_t k = 0; k < n; k++) {
        blocks[k / size].i = k / size;
        blocks[k / size].n_entries += n_heads[k];
    }
    qsort(blocks, (size_t)n_blocks, sizeof *blocks, by_entries);
    for (int32_t j = 0; j < n_blocks && n_gone < n - m->n_kept; j++)
        for (int32_t k = blocks[j].i * size; k < n && k < (blocks[j].i + 1) * size; k++, n_gone++)
            goes[k] = true;
    free(blocks);
    return n_gone;
}

/* Removes the marked tokens and moves later ones up. Positions of a slot are 0, 1, 2 ... */
static bool apply(struct serve_watched *w, const struct middle *m, const bool *goes)
{
    struct llama_memory_i *mem = llama_get_memory(w->ctx);
    int32_t removed = 0;
    for (int32_t k = m->from, to; k < m->to; k = to) {
        for (to = k; to < m->to && goes[to - m->from] == goes[k - m->from]; to++)
            ;
        if (goes[k - m->from]) {
            if (!REAL(llama_memory_seq_rm)(mem, m->seq, k, to))
                return false;
            serve_sequences_rm(&w->sequences, m->seq, k, to);
            removed += to - k;
        } else if (removed > 0) {
            REAL(llama_memory_seq_add)(mem, m->seq, k, to, -removed);
        }
    }
    REAL(llama_memory_seq_add)(mem, m->seq, m->to, -1, -removed);
    serve_sequences_close_up(&w->sequences, m->seq);
    return true;
}

/* The number of tokens that are left of the first n. */
static int32_t left_of(int32_t n, const struct middle *m, const bool *goes)
{
    int32_t left = n;
    for (int32_t k = m->from; k < m->to && k < n; k++)
        left -= goes[k - m->from];
    return left;
}

static void note(struct serve_watched *w, const struct middle *m, const bool *goes, int32_t n_gone)
{
    struct serve_slot_cache *s = &w->slot_cache[m->seq];
    s->at_prompt = left_of(s->at_prompt, m, goes);
    s->n_judged = left_of(s->n_judged > m->to ? s->n_judged : m->to, m, goes);
    s->n_settled = 0;
    serve_watched_bury(w);
    serve_watched_count(w, m->seq);
    serve_watched_report(w, m->seq);
    serve_watched_tell(w, false, false);
    fprintf(stderr, "winnow: slot %d: room was made: %d tokens of the middle were removed, %d are left\n",
            (int)m->seq, (int)n_gone, (int)w->sequences.of[m->seq].n);
}

/* Removes tokens of the middle until n_kept are left. */
static bool shrink(struct serve_watched *w, const struct middle *m)
{
    const size_t n = (size_t)(m->to - m->from), n_cells = (size_t)w->sequences.n_cells;
    int32_t *scratch = malloc(2 * n_cells * sizeof *scratch), *n_heads = calloc(n, sizeof *n_heads);
    bool *goes = calloc(n, sizeof *goes);
    int32_t n_gone = -1;
    bool good = scratch && n_heads && goes && serve_compress_middle(w, m->seq, m->from, m->to, m->n_kept);
    if (good && count(n_heads, w, m, scratch, scratch + n_cells))
        n_gone = choose(goes, m, n_heads);
    good = n_gone >= 0 && apply(w, m, goes);
    if (good)
        note(w, m, goes, n_gone);
    else
        fprintf(stderr, "winnow: slot %d: no room can be made: %s\n", (int)m->seq, wnw_last_error());
    free(scratch);
    free(n_heads);
    free(goes);
    return good;
}

/* Slots, a bit for each, that have cells of this one, too: those of several answers to a prompt. */
static uint64_t sharing(const struct serve_watched *w, int32_t seq)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    uint64_t bits = 0;
    for (int32_t k = 0; k < q->n; k++)
        w->marked[q->cell[k]] = w->sequences.owners[q->cell[k]] > 1;
    for (int32_t i = 0; i < w->n_slots; i++) {
        const struct serve_sequence *o = &w->sequences.of[i];
        for (int32_t k = 0; i != seq && k < o->n; k++)
            bits |= w->marked[o->cell[k]] ? UINT64_C(1) << i : 0;
    }
    for (int32_t k = 0; k < q->n; k++)
        w->marked[q->cell[k]] = false;
    return bits;
}

/* Whether a slot has its cells for itself: their positions would be moved in others, too. */
static bool is_alone(const struct serve_watched *w, int32_t seq)
{
    if (sharing(w, seq) == 0)
        return true;
    fprintf(stderr, "winnow: slot %d: no room can be made: another slot that is busy has the same tokens\n",
            (int)seq);
    return false;
}

/* Makes room for n more tokens in a slot that is to hold `most`: half of that is left. The last quarter stays as it is. */
static bool make(struct serve_watched *w, int32_t seq, int32_t n, int32_t most)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    const int32_t n_left = least(most / 2, most - 1 - n), header = serve_compress_header(w, seq);
    struct middle m = {.seq = seq, .from = header > LEAST_HEADER ? header : LEAST_HEADER};
    if (2 * m.from > n_left) {
        if (2 * m.from > most / 2)
            fprintf(stderr,
                    "winnow: slot %d: no room can be made: its header has %d tokens, and the context %d\n",
                    (int)seq, (int)m.from, (int)most);
        else
            fprintf(
                stderr,
                "winnow: slot %d: no room can be made: %d tokens are read together, and the context has %d\n",
                (int)seq, (int)n, (int)most);
        return false;
    }
    const int32_t n_last = least(most / 4, (n_left - m.from) / 2);
    m.to = q->n - n_last;
    m.n_kept = n_left - m.from - n_last;
    return m.to - m.from > m.n_kept && is_alone(w, seq) && shrink(w, &m);
}

/* ---- What came from a file ---- */

/* Learns the cells of a slot that was restored: a token after it sees them all. It is removed again. */
static void learn(struct serve_watched *w, int32_t seq)
{
    const llama_pos pos = w->slot_cache[seq].n_unknown;
    const int32_t n_said = w->said[seq].n; /* this token is not one of them */
    struct serve_batch rows = {0};
    struct llama_batch_ext *batch = llama_batch_ext_init(w->ctx);
    const int32_t token =
        w->restored[seq].n > 0 && w->restored[seq].token[0] > 0 ? w->restored[seq].token[0] : 0;
    bool good = batch && REAL(llama_batch_ext_add_token)(batch, seq, token) == 0 &&
                REAL(llama_batch_ext_set_pos)(batch, 0, &pos);
    serve_batch_add(&rows, 0, seq, token);
    good = good && rows.n == 1;
    if (good) {
        rows.row[0].pos = pos;
        rows.row[0].at = n_said;
        w->running = &rows;
        w->at = 0;
        good = REAL(llama_process)(w->ctx, LLAMA_PROCESS_TYPE_DECODE, batch) == 0;
        w->running = NULL;
        llama_synchronize(w->ctx);
        REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, pos, -1);
        serve_sequences_rm(&w->sequences, seq, pos, -1);
        w->said[seq].n = n_said;
    }
    if (good && w->slot_cache[seq].n_unknown == 0) {
        w->slot_cache[seq].recount = false;
        serve_watched_count(w, seq);
        serve_watched_report(w, seq);
    }
    serve_watched_bury(w);
    if (batch)
        REAL(llama_batch_ext_free)(batch);
    free(rows.row);
}

/* ---- When ---- */

static bool may(const struct serve_watched *w, int32_t seq)
{
    return w->slot_cache[seq].n_unknown == 0 && w->slot_cache[seq].document_plus_1 == 0 &&
           !serve_slots_how(seq).refuses;
}

static int32_t n_free(const struct serve_watched *w)
{
    int32_t n = w->sequences.n_cells - w->sequences.n_live;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        n -= w->slot_cache[seq].n_unknown;
    return n;
}

static int32_t longest(const struct serve_watched *w)
{
    int32_t best = -1;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        if (may(w, seq) && (best < 0 || w->sequences.of[seq].n > w->sequences.of[best].n))
            best = seq;
    return best;
}

/* Whether room is made in a slot for n more tokens. A cell is left free, so that a slot that comes from a file can have a token after it. */
static bool is_full(const struct serve_watched *w, int32_t seq, int32_t n)
{
    return n > 0 && w->most > 0 && w->sequences.of[seq].n + n >= w->most && may(w, seq);
}

uint64_t serve_stretch_in_way(const struct serve_watched *w, const struct serve_batch *b)
{
    uint64_t bits = 0;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        bits |= is_full(w, seq, serve_batch_rows_of(b, seq).n) ? sharing(w, seq) : 0;
    return bits;
}

void serve_stretch_make(struct serve_watched *w, const struct serve_batch *b)
{
    if (w->most == 0)
        return;
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        const int32_t n = serve_batch_rows_of(b, seq).n, n_held = w->sequences.of[seq].n;
        const int32_t n_unknown = n_held == 0 ? w->slot_cache[seq].n_unknown : 0;
        if (n > 0 && n_unknown > 0 && (n_unknown + n >= w->most || n_free(w) < b->n) && n_free(w) > 0)
            learn(w, seq);
        if (is_full(w, seq, n))
            (void)make(w, seq, n, w->most);
    }
}

bool serve_stretch_lacks(const struct serve_watched *w, const struct serve_batch *b)
{
    return w->most > 0 && n_free(w) < b->n;
}

void serve_stretch_longest(struct serve_watched *w)
{
    const int32_t seq = longest(w);
    if (seq >= 0)
        (void)make(w, seq, 0, w->sequences.of[seq].n);
}
