/* SPDX-License-Identifier: MIT */
#include "serve/breaks.h"

#include "serve/stretch.h"
#include "serve/why.h"

#include <llama.h>

#include <stdlib.h>
#include <string.h>

/* Tokens of a text that is shown. */
enum { SHOWN = 16 };

/* The number of tokens of a slot's conversation, with those that were removed from its middle. */
static int32_t counted(const struct serve_watched *w, int32_t seq)
{
    return w->unmatched ? w->said[seq].n : serve_watched_counted(w, seq);
}

/* The tokens of a slot's conversation, [*n]. Where tokens may be removed from the middle, they are those that were said. */
static const int32_t *tokens_of(const struct serve_watched *w, int32_t seq, int32_t *n)
{
    *n = counted(w, seq);
    const int32_t *said = w->unmatched || w->most > 0 ? serve_stretch_said(w, seq, *n) : NULL;
    if (said)
        return said;
    const int32_t *ids = serve_watched_tokens(w, seq, n);
    *n = serve_watched_removed(w, seq) == 0 ? *n : 0; /* some are not known */
    return ids;
}

/* The number of tokens before a position of the server's. */
static int32_t tokens_before(const struct serve_watched *w, int32_t seq, const int32_t *ids, int32_t n,
                             int32_t from)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    int32_t at = from > 0 ? from : 0;
    if (w->unmatched || ids != q->token)
        return at;
    for (at = 0; at < n && q->at[at] < from; at++)
        ;
    return at;
}

void serve_breaks_note(struct serve_watched *w, int32_t seq, int32_t from)
{
    struct serve_break *b = &w->breaks[seq];
    const struct serve_how how = serve_slots_how(seq);
    int32_t n;
    const int32_t *ids = tokens_of(w, seq, &n);
    if (how.claim == 0 || how.claim == b->told || how.claim == b->noted)
        return;
    const int32_t at = tokens_before(w, seq, ids, n, from);
    if (at >= n)
        return;
    free(b->was);
    b->was = malloc((size_t)(n - at) * sizeof *b->was);
    b->noted = how.claim;
    b->of_others = how.of_others;
    b->at = at;
    b->n_was = b->was ? n - at : 0;
    if (b->was)
        memcpy(b->was, ids + at, (size_t)b->n_was * sizeof *b->was);
}

void serve_breaks_clear(struct serve_watched *w)
{
    for (int32_t seq = 0; seq < SERVE_MAX_SLOTS; seq++) {
        free(w->breaks[seq].was);
        w->breaks[seq] = (struct serve_break){0};
    }
}

/* The text of tokens; what is not known or no text is left out. */
static void set_text(char to[SERVE_WHY_TEXT], const struct serve_watched *w, const int32_t *ids, int32_t n)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(w->ctx));
    char text[SERVE_WHY_TEXT];
    int32_t at = 0;
    for (int32_t i = 0; i < n && i < SHOWN; i++) {
        const bool known = ids[i] >= 0 && ids[i] < llama_vocab_n_tokens(vocab);
        const int32_t bytes =
            known ? llama_token_to_piece(vocab, ids[i], text + at, SERVE_WHY_TEXT - 1 - at, 0, true) : 0;
        if (bytes < 0)
            break;
        at += bytes;
    }
    serve_why_text(to, text, (size_t)at);
}

/* Whether a model's state cannot be cut anywhere. */
static bool has_states(const struct serve_watched *w)
{
    return w->unmatched || llama_model_n_swa(llama_get_model(w->ctx)) > 0;
}

/* Sets where it breaks. The server reads the last token of a prompt again that is there as a whole: that is no break. */
static void set_break(struct serve_why *x, const struct serve_watched *w, int32_t seq,
                      const struct serve_break *b)
{
    int32_t n_all, same = 0;
    const int32_t *ids = tokens_of(w, seq, &n_all), n = n_all - b->at;
    while (same < n && same < b->n_was && ids[b->at + same] == b->was[same])
        same++;
    if (same > 1 && has_states(w))
        x->cause = SERVE_WHY_STATES;
    if (n <= 0 || same == b->n_was || same == n)
        return;
    const int32_t at = b->at + same, n_before = at < SHOWN ? at : SHOWN;
    x->broke = true;
    x->at = at;
    set_text(x->before, w, ids + at - n_before, n_before);
    set_text(x->is, w, ids + at, n - same);
    x->of_others = b->of_others;
    if (x->of_others) { /* what they said is not told */
        x->cause = "another client's conversation had the slot";
        return;
    }
    set_text(x->was, w, b->was + same, b->n_was - same);
    x->cause = serve_why_cause(x->before, x->was, x->is);
    if (strcmp(x->cause, SERVE_WHY_DIFFERS) == 0 && x->at < n_all / 10)
        x->cause = "another conversation had the slot";
}

static void tell(struct serve_watched *w, int32_t seq, const struct serve_how *how, int32_t n_before,
                 int32_t n_document)
{
    struct serve_break *b = &w->breaks[seq];
    struct serve_why x = {.slot = seq, .owner = how->owner, .n_read = counted(w, seq) - n_before};
    x.n_document = n_document < n_before ? n_document : n_before;
    x.n_parked = how->parked ? n_before - x.n_document : 0;
    x.n_slot = n_before - x.n_document - x.n_parked;
    if (b->noted == how->claim && how->no_reuse)
        x.cause = "what the slot had was kept by another policy, or for another question";
    else if (b->noted == how->claim && b->was)
        set_break(&x, w, seq, b);
    b->told = how->claim;
    free(b->was);
    b->was = NULL;
    serve_why_add(&x);
}

void serve_breaks_tell(struct serve_watched *w, int32_t seq, int32_t n_before, int32_t n_document)
{
    const struct serve_how how = serve_slots_how(seq);
    if (how.claim != 0)
        tell(w, seq, &how, n_before, n_document);
}

void serve_breaks_tell_row(struct serve_watched *w, int32_t seq, int32_t n_before, int32_t n_document)
{
    const struct serve_how how = serve_slots_how(seq);
    if (how.claim != 0 && how.claim != w->breaks[seq].told && !w->copied[seq])
        tell(w, seq, &how, n_before, n_document);
}

/* ---- Models whose rows are not matched to cells ---- */

void serve_breaks_begin(struct serve_watched *w, const struct serve_batch *batch)
{
    for (int32_t seq = 0; seq < w->n_slots; seq++) {
        const struct serve_row *first = serve_batch_first_of(batch, seq);
        const uint64_t claim = first ? serve_slots_how(seq).claim : 0;
        if (claim == 0 || w->copied[seq] || claim == w->breaks[seq].begun)
            continue;
        w->breaks[seq].begun = claim;
        w->breaks[seq].n_first = first->at;
        serve_breaks_note(w, seq, first->at);
    }
}

void serve_breaks_end(struct serve_watched *w, const struct serve_batch *batch)
{
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        if (serve_batch_rows_of(batch, seq).ends)
            serve_breaks_tell_row(w, seq, w->breaks[seq].n_first, 0);
}
