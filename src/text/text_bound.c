/* SPDX-License-Identifier: MIT */
/*
 * Tells from a text's bytes whether it has too many tokens, because the tokenizer would take fifty times the
 * text's memory, and minutes, for a text that is then refused.
 *
 * No token has more bytes of text than the longest one in the vocabulary is spelled with (spelling makes bytes
 * longer, never shorter), so bytes / longest is a lower bound of the tokens. Bytes that may vanish do not count:
 * white space at the ends, which templates trim; bytes for which a byte-pair vocabulary has no token, which libllama
 * drops; all white space where a special token swallows what is next to it.
 */
#include "text/text_bound.h"

#include "model/model.h"
#include "text/tokenizer.h"
#include "winnow_tools.h"

#include <llama.h>
#include <string.h>

static const unsigned char white[] = " \t\n\v\f\r";

/* Marks the byte that the token spells, if it spells a single one. */
static void mark_single_byte(struct wnw__text_bound *b, const struct llama_vocab *vocab, int32_t id)
{
    char piece[8];
    if (llama_token_to_piece(vocab, id, piece, sizeof piece, 0, false) == 1)
        b->counts[(unsigned char)piece[0]] = true;
}

struct wnw__text_bound wnw__text_bound_of(const struct llama_vocab *vocab)
{
    const enum llama_vocab_type type = llama_vocab_type(vocab);
    const bool pairs = type == LLAMA_VOCAB_TYPE_BPE;
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    struct wnw__text_bound b = {.longest = 0};
    bool swallows = false;
    if (!pairs && type != LLAMA_VOCAB_TYPE_SPM)
        return b;
    for (int32_t id = 0; id < n_vocab; id++) {
        const char *spelled = llama_vocab_get_text(vocab, id);
        const size_t len = spelled ? strlen(spelled) : 0;
        b.longest = len > b.longest ? len : b.longest;
        if (pairs && len <= sizeof "<0x00>" - 1)
            mark_single_byte(&b, vocab, id);
        swallows = swallows || (llama_vocab_get_attr(vocab, id) &
                                (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP)) != 0;
    }
    if (!pairs) /* sentencepiece falls back to byte tokens, which it cannot do without */
        memset(b.counts, true, sizeof b.counts);
    /* A byte that is no UTF-8 becomes U+FFFD, which is EF BF BD. */
    if (!b.counts[0xef] || !b.counts[0xbf] || !b.counts[0xbd])
        memset(b.counts + 128, false, 128);
    for (size_t i = 0; swallows && i < sizeof white - 1; i++)
        b.counts[white[i]] = false;
    return b;
}

bool wnw_text_exceeds(const wnw_model *m, const char *text, size_t len, int32_t n_tokens, size_t *n_bytes)
{
    size_t sure = 0, blank = 0, i = 0;
    if (n_bytes)
        *n_bytes = len;
    /* A token has at least one byte, so a text of few bytes is decided without the vocabulary. */
    if (!m || !text || n_tokens < 0 || len <= (size_t)n_tokens || !m->tokenizer ||
        m->tokenizer->bound.longest == 0)
        return false;
    const struct wnw__text_bound *b = &m->tokenizer->bound;
    const size_t most = (size_t)n_tokens * b->longest;
    for (; i < len && sure <= most; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (memchr(white, c, sizeof white - 1)) {
            blank += b->counts[c]; /* white space counts only when something follows */
        } else if (b->counts[c]) {
            sure += 1 + (sure > 0 ? blank : 0);
            blank = 0;
        }
    }
    if (n_bytes)
        *n_bytes = i;
    return sure > most;
}
