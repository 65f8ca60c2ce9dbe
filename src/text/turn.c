/* SPDX-License-Identifier: MIT */
/* This is the one place that decides which bytes of a conversation are parsed for control tokens (decision 047). */
#include "text/text.h"

#include "text/layout.h"
#include "text/tokens_marked.h"

#include <llama.h>

#include <stdlib.h>
#include <string.h>

/* The bytes of messages in text[from, to), counted from `from`. Returns NULL if memory runs out; else released with
 * free. */
static wnw_bytes *plain_in(size_t *n, const wnw_prompt *p, size_t from, size_t to)
{
    wnw_bytes *out = malloc(((size_t)p->n_plain + 1) * sizeof *out);
    *n = 0;
    for (int32_t i = 0; out && i < p->n_plain; i++) {
        const size_t first = p->plain[i].from > from ? p->plain[i].from : from,
                     end = p->plain[i].to < to ? p->plain[i].to : to;
        if (first < end)
            out[(*n)++] = (wnw_bytes){first - from, end - from};
    }
    return out;
}

struct part {
    int32_t *ids; /* [n], owned */
    int32_t n, n_at_cut;
};

/* Tokenises bytes [from, to) of the prompt's text, no token over byte `cut`; cut = from: nothing is cut. A part that does not
 * begin the text goes on after the token `before`, -1 = some that is no special one. */
static int tokenize_part(struct part *out, const wnw_model *m, const wnw_prompt *p, wnw_bytes where,
                         size_t cut, int32_t before)
{
    const size_t at = cut - where.from;
    struct wnw__marked in = {.text = p->text + where.from,
                             .n = where.to - where.from,
                             .cut = &at,
                             .n_cut = 1,
                             .follows = where.from > 0,
                             .before = before};
    wnw_bytes *plain = plain_in(&in.n_plain, p, where.from, where.to);
    in.plain = plain;
    *out = (struct part){0};
    const int rc = plain ? wnw__tokenize_marked(m, &in, &out->ids, &out->n, &out->n_at_cut)
                         : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    free(plain);
    return rc;
}

/* Tokenises the text from the tokens on that stay, with a BOS where it begins. */
static int tokenize_rest(wnw_prompt *out, const struct wnw__turn *t)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(t->m->vocab);
    const int32_t bos = llama_vocab_bos(vocab);
    const size_t from = t->kept.text;
    struct part p;
    WNW_TRY(tokenize_part(&p, t->m, out, (wnw_bytes){from, out->n_text}, t->border > from ? t->border : from,
                          t->before));
    const bool begins = t->kept.tokens == 0 && llama_vocab_get_add_bos(vocab) && bos >= 0;
    const int32_t n_bos = begins && !(p.n > 0 && p.ids[0] == bos) ? 1 : 0;
    out->tokens = malloc(((size_t)n_bos + (size_t)p.n + 1) * sizeof *out->tokens);
    if (out->tokens) {
        out->tokens[0] = bos;
        memcpy(out->tokens + n_bos, p.ids, (size_t)p.n * sizeof *p.ids);
        out->n_past = t->kept.tokens;
        out->n_context = n_bos + p.n_at_cut;
        out->n_tokens = n_bos + p.n;
    }
    free(p.ids);
    return out->tokens ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)p.n);
}

/* Counts the tokens that lie wholly in the head, BOS included. A token may span the border between template
 * and message, and the head alone then has other tokens there; so the common first tokens of both count. */
static int measure_prefix(wnw_prompt *out, const wnw_model *m, size_t n_head)
{
    struct part head;
    if (n_head == 0)
        return WNW_OK;
    WNW_TRY(tokenize_part(&head, m, out, (wnw_bytes){0, n_head}, 0, -1));
    const int32_t bos = llama_vocab_bos(llama_model_get_vocab(m->vocab));
    const int32_t n_bos =
        out->n_context > 0 && out->tokens[0] == bos && !(head.n > 0 && head.ids[0] == bos) ? 1 : 0;
    int32_t i = 0;
    while (i < head.n && n_bos + i < out->n_context && out->tokens[n_bos + i] == head.ids[i])
        i++;
    out->n_prefix = n_bos + i;
    free(head.ids);
    return WNW_OK;
}

static int tokenize_suffix(wnw_prompt *out, const wnw_model *m, const struct wnw__layout *l)
{
    struct part p;
    if (l->r.end == l->tail_end)
        return WNW_OK;
    WNW_TRY(tokenize_part(&p, m, out, (wnw_bytes){l->r.end, l->tail_end}, l->r.end, -1));
    out->suffix = p.ids;
    out->n_suffix = p.n;
    return WNW_OK;
}

/* Gives the prompt the rendered text and the bytes that are plain in it. */
static void take_text(wnw_prompt *out, struct wnw__rendered *r, bool special)
{
    out->text = r->text;
    out->n_text = r->n;
    out->plain = r->input;
    out->n_plain = special ? 0 : r->n_input;
    r->text = NULL;
    r->input = NULL;
}

int wnw__turn_tokenize(wnw_prompt *out, const struct wnw__turn *t, struct wnw__layout *l)
{
    take_text(out, &l->r, t->special);
    WNW_TRY(tokenize_rest(out, t));
    if (t->kept.tokens == 0)
        WNW_TRY(measure_prefix(out, t->m, l->n_head));
    return tokenize_suffix(out, t->m, l);
}
