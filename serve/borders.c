/* SPDX-License-Identifier: MIT */
#include "serve/borders.h"

#include "serve/libllama_real.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens between borders: nearer ones save little. The server has several around the end of a prompt. */
enum { LEAST_BETWEEN = 32 };

/* libllama's state without what can be cut. */
static const llama_state_seq_flags partial = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

/* ---- The list of a slot ---- */

static void drop(struct serve_borders *b, int32_t i)
{
    free(b->of[i].state);
    b->n--;
    memmove(b->of + i, b->of + i + 1, (size_t)(b->n - i) * sizeof *b->of);
}

/* The border that is missed least: conversations go back to recent turns more often, so older borders may have more tokens between them. */
static int32_t least_missed(const struct serve_borders *b)
{
    const int64_t end = b->of[b->n - 1].n_tokens;
    int32_t best = 1;
    for (int32_t i = 2; i + 1 < b->n; i++) {
        const int64_t gap = b->of[i + 1].n_tokens - b->of[i - 1].n_tokens,
                      least = b->of[best + 1].n_tokens - b->of[best - 1].n_tokens;
        if (gap * (end - b->of[best].n_tokens) < least * (end - b->of[i].n_tokens))
            best = i;
    }
    return best;
}

static void add(struct serve_borders *b, int32_t n_tokens, const uint8_t *state, size_t bytes)
{
    while (b->n > 0 && b->of[b->n - 1].n_tokens > n_tokens)
        drop(b, b->n - 1);
    uint8_t *copy =
        b->n > 0 && n_tokens - b->of[b->n - 1].n_tokens < LEAST_BETWEEN ? NULL : malloc(bytes + 1);
    if (!copy)
        return;
    memcpy(copy, state, bytes);
    if (b->n == SERVE_BORDERS)
        drop(b, least_missed(b));
    b->of[b->n++] = (struct serve_border){.n_tokens = n_tokens, .bytes = bytes, .state = copy};
}

static int32_t n_held(const struct serve_watched *w, int32_t seq)
{
    return REAL(llama_memory_seq_pos_max)(llama_get_memory(w->ctx), seq) + 1;
}

void serve_borders_add(struct serve_watched *w, int32_t seq, const uint8_t *state, size_t bytes)
{
    const int32_t n = n_held(w, seq);
    if (n > 0 && bytes > 0)
        add(&w->borders[seq], n, state, bytes);
}

void serve_borders_cut(struct serve_watched *w, int32_t seq, int32_t n)
{
    struct serve_borders *b = &w->borders[seq];
    while (b->n > 0 && b->of[b->n - 1].n_tokens > n)
        drop(b, b->n - 1);
    b->restored = b->restored && n > 0;
}

void serve_borders_copy(struct serve_watched *w, int32_t from, int32_t to)
{
    const struct serve_borders *b = &w->borders[from];
    serve_borders_cut(w, to, 0);
    for (int32_t i = 0; i < b->n; i++)
        add(&w->borders[to], b->of[i].n_tokens, b->of[i].state, b->of[i].bytes);
    w->borders[to].restored = b->restored;
}

void serve_borders_clear(struct serve_watched *w)
{
    for (int32_t seq = 0; seq < SERVE_MAX_SLOTS; seq++) {
        serve_borders_cut(w, seq, 0);
        w->borders[seq].tokens = NULL;
    }
    w->compared = NULL;
    w->goes_back_to = 0;
}

/* ---- Files ---- */

/* In a file each border begins with this. */
struct head {
    uint64_t bytes;
    int32_t n_tokens, unused;
};

/* Borders that are saved in any case. More may take as much room as the slot itself. */
enum { LEAST_SAVED = 3 };

bool serve_borders_save(struct serve_slot_read *x, const struct serve_watched *w, int32_t seq, int32_t n)
{
    const struct serve_borders *b = &w->borders[seq];
    size_t size = 0, at = 0;
    int32_t n_saved = 0, to = b->n, i;
    while (to > 0 && b->of[to - 1].n_tokens >= n)
        to--;
    for (i = to; i > 0 && (n_saved < LEAST_SAVED || size + b->of[i - 1].bytes <= x->file.state_bytes);
         i--, n_saved++)
        size += sizeof(struct head) + b->of[i - 1].bytes;
    x->borders = size > 0 ? malloc(size) : NULL;
    if (size > 0 && !x->borders)
        return false;
    x->file.border_bytes = size;
    for (; i < to; i++) {
        const struct head h = {.bytes = b->of[i].bytes, .n_tokens = b->of[i].n_tokens};
        memcpy(x->borders + at, &h, sizeof h);
        memcpy(x->borders + at + sizeof h, b->of[i].state, b->of[i].bytes);
        at += sizeof h + b->of[i].bytes;
    }
    return true;
}

/* Whether libllama takes a border's state: another number of slots may have left it a smaller window. */
static bool is_taken(const struct serve_watched *w, int32_t seq, const uint8_t *state, size_t bytes)
{
    return REAL(llama_state_seq_set_data_ext)(w->ctx, state, bytes, seq, partial) == bytes;
}

void serve_borders_restore(struct serve_watched *w, int32_t seq, const struct serve_slot_read *x)
{
    const size_t size = (size_t)x->file.border_bytes;
    struct serve_borders *b = &w->borders[seq];
    struct head h;
    serve_borders_cut(w, seq, 0);
    for (size_t at = 0; size - at >= sizeof h; at += (size_t)h.bytes) {
        memcpy(&h, x->borders + at, sizeof h);
        at += sizeof h;
        if (h.bytes > size - at || h.n_tokens <= 0 || h.n_tokens >= x->file.n_sequence)
            break;
        if (is_taken(w, seq, x->borders + at, (size_t)h.bytes))
            add(b, h.n_tokens, x->borders + at, (size_t)h.bytes);
        REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, -1, -1);
    }
    b->restored =
        w->unmatched || llama_model_n_swa(llama_get_model(w->ctx)) > 0; /* others can be cut anywhere */
}

/* ---- Going back ---- */

int32_t serve_borders_first(const struct serve_watched *w, int32_t seq)
{
    enum { SPARE = 2 };
    const llama_pos pos = REAL(llama_memory_seq_pos_min)(llama_get_memory(w->ctx), seq);
    if (w->unmatched || pos <= 0 || llama_model_n_swa(llama_get_model(w->ctx)) == 0)
        return pos;
    return pos > SPARE ? pos - SPARE : 0;
}

/* The slot whose tokens these are. The tokens of a slot that was restored may not have been compared since the server started. If there is one such
 * slot, it is that. */
static int32_t slot_of(const struct serve_watched *w, const void *tokens)
{
    int32_t unknown = -1, n_unknown = 0;
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        if (w->borders[seq].tokens == tokens)
            return seq;
        if (w->borders[seq].restored && !w->borders[seq].tokens) {
            unknown = seq;
            n_unknown++;
        }
    }
    return n_unknown == 1 ? unknown : -1;
}

/* The number of tokens at the last border before n; 0: there is none. */
static int32_t last_before(const struct serve_borders *b, size_t n)
{
    int32_t best = 0;
    for (int32_t i = 0; i < b->n && (size_t)b->of[i].n_tokens < n; i++)
        best = b->of[i].n_tokens;
    return best;
}

size_t serve_borders_common(struct serve_watched *w, const void *tokens, size_t n)
{
    w->goes_back_to = 0;
    w->compared = w->ctx ? tokens : NULL;
    w->n_compared = n;
    const int32_t seq = w->compared && n > 0 ? slot_of(w, tokens) : -1;
    if (seq < 0 || !w->borders[seq].restored)
        return n;
    const int32_t first = serve_borders_first(w, seq), n_swa = llama_model_n_swa(llama_get_model(w->ctx));
    const bool all = !w->unmatched && (first <= 0 || n >= (size_t)n_held(w, seq));
    w->goes_back_seq = seq;
    if (all) /* windows have what the next token sees */
        w->goes_back_to = n < (size_t)n_held(w, seq) ? (int32_t)n : n_held(w, seq);
    else if (n < (size_t)n_held(w, seq) &&
             (size_t)first + (size_t)n_swa >= n) /* the state does not reach as far back */
        w->goes_back_to = last_before(&w->borders[seq], n);
    return w->goes_back_to > 0 ? (size_t)w->goes_back_to : n;
}

bool serve_borders_goes_on(struct serve_watched *w, int32_t seq)
{
    const size_t n = w->n_compared;
    w->n_compared = 0;
    return w->unmatched && llama_model_n_swa(llama_get_model(w->ctx)) > 0 && n > 0 &&
           n >= (size_t)n_held(w, seq);
}

bool serve_borders_goes_back(struct serve_watched *w, int32_t seq)
{
    if (w->compared)
        w->borders[seq].tokens = w->compared;
    w->compared = NULL;
    return w->goes_back_to > 0 && w->goes_back_seq == seq;
}

void serve_borders_go_back(struct serve_watched *w, int32_t seq, int32_t n)
{
    const bool goes = serve_borders_goes_back(w, seq) && w->goes_back_to == n;
    const struct serve_borders *b = &w->borders[seq];
    for (int32_t i = 0; goes && i < b->n; i++)
        if (b->of[i].n_tokens == n && !is_taken(w, seq, b->of[i].state, b->of[i].bytes))
            fprintf(stderr, "winnow: slot %d: the state of its first %d tokens is not taken back\n", (int)seq,
                    (int)n);
    w->goes_back_to = 0;
}
