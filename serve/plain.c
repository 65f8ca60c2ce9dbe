/* SPDX-License-Identifier: MIT */
#include "serve/plain.h"

#include <llama.h>

#include <stdlib.h>
#include <string.h>

/* What this thread tokenises; NULL: no document. */
static _Thread_local struct {
    const char *document;
    size_t at;
} plain;

void serve_plain_begin(const char *document, size_t at)
{
    plain.document = document;
    plain.at = at;
}

void serve_plain_end(void)
{
    plain.document = NULL;
}

/* A text that is tokenised in parts: [0, from) and [to, n) with control tokens, and between them without. */
struct parts {
    const char *text;
    size_t n, from, to;
};

static bool is_control(const struct llama_vocab *vocab, int32_t id)
{
    return llama_vocab_get_attr(vocab, id) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The end of the last place where text[n] has `word`; 0: it has none. */
static size_t end_of_last(const char *text, size_t n, const char *word, size_t n_word)
{
    for (size_t at = n; at >= n_word; at--)
        if (memcmp(text + at - n_word, word, n_word) == 0)
            return at;
    return 0;
}

/* Finds the last control token before the document and the first one after it, if they swallow white space around them. */
static void find_parts(struct parts *p, const struct llama_vocab *vocab, size_t at, size_t end)
{
    int32_t before = -1, after = -1;
    p->from = 0;
    p->to = p->n;
    for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); id++) {
        const char *word = is_control(vocab, id) ? llama_vocab_get_text(vocab, id) : NULL;
        const size_t n_word = word ? strlen(word) : 0;
        if (n_word == 0)
            continue;
        const size_t last = end_of_last(p->text, at, word, n_word);
        const char *first = memmem(p->text + end, p->n - end, word, n_word);
        if (last > p->from) {
            p->from = last;
            before = id;
        }
        if (first && (size_t)(first - p->text) < p->to) {
            p->to = (size_t)(first - p->text);
            after = id;
        }
    }
    while (before >= 0 && (llama_vocab_get_attr(vocab, before) & LLAMA_TOKEN_ATTR_RSTRIP) && p->from < at &&
           is_blank(p->text[p->from]))
        p->from++;
    while (after >= 0 && (llama_vocab_get_attr(vocab, after) & LLAMA_TOKEN_ATTR_LSTRIP) && p->to > end &&
           is_blank(p->text[p->to - 1]))
        p->to--;
}

struct list {
    int32_t *ids, n, room;
};

/* Adds the tokens of a part. False: no memory, or libllama cannot take the text. */
static bool add(struct list *l, serve_tokenize *real, const struct llama_vocab *vocab, const char *text,
                size_t n, bool add_special, bool parse_special)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        const int32_t got = real(vocab, text, (int32_t)n, l->ids ? l->ids + l->n : NULL, l->room - l->n,
                                 add_special, parse_special);
        if (got >= 0) {
            l->n += got;
            return true;
        }
        int32_t *more =
            got == INT32_MIN ? NULL : realloc(l->ids, ((size_t)l->n + (size_t)-got) * sizeof *more);
        if (!more)
            return false;
        l->ids = more;
        l->room = l->n - got;
    }
    return false;
}

/* The first and the last part get the special tokens for the beginning and the end of a text. */
static bool add_parts(struct list *l, serve_tokenize *real, const struct llama_vocab *vocab,
                      const struct parts *p, bool add_special)
{
    bool good = add(l, real, vocab, p->text, p->from, add_special, true);
    const bool ends = good && add_special && llama_vocab_get_add_eos(vocab) && l->n > 0;
    const int32_t eos = ends ? l->ids[--l->n] : -1;
    good = good && add(l, real, vocab, p->text + p->from, p->to - p->from, false, false) &&
           add(l, real, vocab, p->text + p->to, p->n - p->to, false, true);
    if (good && ends) {
        good = l->n < l->room;
        if (!good) {
            int32_t *more = realloc(l->ids, ((size_t)l->n + 1) * sizeof *more);
            good = more != NULL;
            l->ids = more ? more : l->ids;
        }
        if (good)
            l->ids[l->n++] = eos;
    }
    return good;
}

int32_t serve_plain_tokenize(serve_tokenize *real, const struct llama_vocab *vocab, const char *text,
                             int32_t text_len, int32_t *tokens, int32_t n_tokens_max, bool add_special,
                             bool parse_special)
{
    const size_t n = text_len > 0 ? (size_t)text_len : 0,
                 n_document = plain.document ? strlen(plain.document) : 0;
    const size_t at = plain.at, end = at + n_document;
    if (!plain.document || !parse_special || n_document == 0 || end > n ||
        memcmp(text + at, plain.document, n_document) != 0)
        return real(vocab, text, text_len, tokens, n_tokens_max, add_special, parse_special);
    struct parts p = {.text = text, .n = n};
    struct list l = {0};
    find_parts(&p, vocab, at, end);
    int32_t got = INT32_MIN;
    if (add_parts(&l, real, vocab, &p, add_special)) {
        got = l.n <= n_tokens_max ? l.n : -l.n;
        if (got > 0)
            memcpy(tokens, l.ids, (size_t)l.n * sizeof *tokens);
    }
    free(l.ids);
    return got;
}
