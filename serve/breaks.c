/* SPDX-License-Identifier: MIT */
#include "serve/breaks.h"

#include "serve/why.h"

#include <llama.h>

#include <string.h>

void serve_breaks_note(struct serve_watched *w, int32_t seq, int32_t from)
{
    struct serve_break *b = &w->breaks[seq];
    const struct serve_sequence *q = &w->sequences.of[seq];
    const struct serve_how how = serve_slots_how(seq);
    int32_t n, at = from > 0 ? from : 0;
    const int32_t *ids = serve_watched_tokens(w, seq, &n);
    if (how.claim == 0 || how.claim == b->told || how.claim == b->noted)
        return;
    for (at = w->slot_cache[seq].n_unknown > 0 ? at : 0; ids == q->token && at < n && q->pos[at] < from; at++)
        ;
    if (at >= n)
        return;
    b->noted = how.claim;
    b->at = at;
    b->n_before = at < SERVE_BREAK ? at : SERVE_BREAK;
    memcpy(b->before, ids + at - b->n_before, (size_t)b->n_before * sizeof *ids);
    b->n_was = n - at < SERVE_BREAK ? n - at : SERVE_BREAK;
    memcpy(b->was, ids + at, (size_t)b->n_was * sizeof *ids);
}

/* The text of tokens; what is not known or no text is left out. */
static void set_text(char to[SERVE_WHY_TEXT], const struct serve_watched *w, const int32_t *ids, int32_t n)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(w->ctx));
    char text[SERVE_WHY_TEXT];
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool known = ids[i] >= 0 && ids[i] < llama_vocab_n_tokens(vocab);
        const int32_t bytes =
            known ? llama_token_to_piece(vocab, ids[i], text + at, SERVE_WHY_TEXT - 1 - at, 0, true) : 0;
        if (bytes < 0)
            break;
        at += bytes;
    }
    serve_why_text(to, text, (size_t)at);
}

/* Sets where it breaks. The server reads the last token of a prompt again that is there as a whole: that is no break. */
static void set_break(struct serve_why *x, const struct serve_watched *w, int32_t seq,
                      const struct serve_break *b)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    int32_t same = 0, n = q->n - b->at;
    n = n < SERVE_BREAK ? n : SERVE_BREAK;
    while (same < n && same < b->n_was && q->token[b->at + same] == b->was[same])
        same++;
    if (n <= 0 || same == b->n_was || same == n)
        return;
    x->broke = true;
    x->at = b->at + same;
    set_text(x->before, w, b->before, b->n_before);
    set_text(x->was, w, b->was + same, b->n_was - same);
    set_text(x->is, w, q->token + b->at + same, n - same);
    x->cause = serve_why_cause(x->before, x->was, x->is);
    if (strcmp(x->cause, SERVE_WHY_DIFFERS) == 0 && x->at < q->n / 10)
        x->cause = "another conversation had the slot";
}

void serve_breaks_tell(struct serve_watched *w, int32_t seq, int32_t n_document)
{
    struct serve_break *b = &w->breaks[seq];
    const struct serve_how how = serve_slots_how(seq);
    const int32_t n_before = w->slot_cache[seq].at_prompt;
    struct serve_why x = {.slot = seq, .owner = how.owner, .n_read = w->sequences.of[seq].n - n_before};
    if (how.claim == 0)
        return;
    x.n_document = n_document < n_before ? n_document : n_before;
    x.n_parked = how.parked ? n_before - x.n_document : 0;
    x.n_slot = n_before - x.n_document - x.n_parked;
    if (b->noted == how.claim && how.no_reuse) {
        x.broke = true;
        x.cause = "what the slot had was kept by another policy, or for another question";
    } else if (b->noted == how.claim) {
        set_break(&x, w, seq, b);
    }
    b->told = how.claim;
    serve_why_add(&x);
}
