/* SPDX-License-Identifier: MIT */
#include "text/tokenizer.h"
#include "text/llama_calls.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONTROL = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN,
    SPECIAL = CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED
};

static bool has_attr(const struct wnw__tokenizer *t, int32_t id, int attr)
{
    return id >= 0 && id < llama_vocab_n_tokens(t->vocab) &&
           ((int)llama_vocab_get_attr(t->vocab, id) & attr) != 0;
}

bool wnw__is_special(const struct wnw__tokenizer *t, int32_t id)
{
    return has_attr(t, id, SPECIAL);
}

bool wnw__is_control(const struct wnw__tokenizer *t, int32_t id)
{
    return has_attr(t, id, CONTROL);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(((const struct wnw__special *)a)->text, ((const struct wnw__special *)b)->text);
}

static struct wnw__special describe(const struct llama_vocab *vocab, int32_t id, int32_t rank)
{
    const int attr = (int)llama_vocab_get_attr(vocab, id);
    const char *text = llama_vocab_get_text(vocab, id);
    return (struct wnw__special){.text = text,
                                 .n = (int32_t)strlen(text),
                                 .id = id,
                                 .rank = rank,
                                 .control = (attr & CONTROL) != 0,
                                 .lstrip = (attr & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                                 .rstrip = (attr & LLAMA_TOKEN_ATTR_RSTRIP) != 0};
}

/* Ids of the special tokens, [t->n_special], in the order in which libllama looks for them. */
static int32_t *special_ids(struct wnw__tokenizer *t)
{
    const int32_t n_vocab = llama_vocab_n_tokens(t->vocab);
    for (int32_t id = 0; id < n_vocab; id++)
        t->n_special += has_attr(t, id, SPECIAL) ? 1 : 0;
    int32_t *ids = calloc((size_t)t->n_special + 1, sizeof *ids);
    for (int32_t id = 0, n = 0; ids && id < n_vocab; id++)
        if (has_attr(t, id, SPECIAL))
            ids[n++] = id;
    if (ids)
        wnw__llama_sort_special(ids, t->n_special, t->vocab);
    return ids;
}

static int collect_special(struct wnw__tokenizer *t)
{
    int32_t *ids = special_ids(t);
    t->special = calloc((size_t)t->n_special + 1, sizeof *t->special);
    t->by_rank = calloc((size_t)t->n_special + 1, sizeof *t->by_rank);
    if (!ids || !t->special || !t->by_rank) {
        free(ids);
        return wnw__fail(WNW_E_NOMEM, "no memory for %d special tokens", (int)t->n_special);
    }
    for (int32_t i = 0; i < t->n_special; i++)
        t->special[i] = describe(t->vocab, ids[i], i);
    free(ids);
    qsort(t->special, (size_t)t->n_special, sizeof *t->special, compare_texts);
    for (int32_t i = 0; i < t->n_special; i++) {
        t->by_rank[t->special[i].rank] = i;
        t->first[(unsigned char)t->special[i].text[0] + 1]++;
    }
    for (int c = 0; c < 256; c++)
        t->first[c + 1] += t->first[c];
    return WNW_OK;
}

static const char blank[] = "\xe2\x96\x81"; /* how SentencePiece writes one */

/* Whether the mark is in the text after something else. */
static bool stands_behind(const char *text, const char *mark)
{
    const size_t n = strlen(mark);
    for (const char *at = strstr(text, mark); at; at = strstr(at + n, mark))
        if (at > text && ((size_t)(at - text) < n || memcmp(at - n, mark, n) != 0))
            return true;
    return false;
}

/* Learns where a SentencePiece vocabulary never merges and which characters it has to spell by bytes. */
static void learn_pieces(struct wnw__tokenizer *t)
{
    t->parts_blank = t->parts_newline = true;
    memset(t->spelled, 1, sizeof t->spelled);
    for (int32_t id = 0; id < llama_vocab_n_tokens(t->vocab); id++) {
        const char *text = llama_vocab_get_text(t->vocab, id);
        if (has_attr(t, id, SPECIAL)) /* taken out of the text before merges */
            continue;
        t->parts_blank = t->parts_blank && !stands_behind(text, blank);
        t->parts_newline = t->parts_newline && !stands_behind(text, "\n");
        if (text[0] && !text[1])
            t->spelled[(unsigned char)text[0]] = false;
        else if (strcmp(text, blank) == 0)
            t->spelled[' '] = false;
    }
}

int wnw__tokenizer_new(struct wnw__tokenizer **out, const struct llama_vocab *vocab, const char *pre,
                       bool prefix)
{
    struct wnw__tokenizer *t = calloc(1, sizeof *t);
    *out = t;
    if (!t)
        return wnw__fail(WNW_E_NOMEM, "no memory for a tokenizer");
    t->vocab = vocab;
    t->prefix = prefix;
    t->bound = wnw__text_bound_of(vocab);
    t->merges_words = llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_BPE;
    if (t->merges_words)
        t->pre = wnw__pretokenizer_named(pre);
    else
        learn_pieces(t);
    const int rc = collect_special(t);
    if (rc != WNW_OK) {
        wnw__tokenizer_free(t);
        *out = NULL;
    }
    return rc;
}

void wnw__tokenizer_free(struct wnw__tokenizer *t)
{
    if (!t)
        return;
    free(t->special);
    free(t->by_rank);
    free(t);
}

/* The first of special[lo .. hi) whose byte at depth d is at least c; the texts agree in the d bytes before. */
static int32_t lower_bound(const struct wnw__tokenizer *t, int32_t lo, int32_t hi, int32_t d, int c)
{
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)t->special[mid].text[d] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void wnw__special_at(const struct wnw__tokenizer *t, const char *text, size_t n, size_t at,
                     void (*see)(const struct wnw__special *s, size_t at, void *user), void *user)
{
    const unsigned char *s = (const unsigned char *)text + at;
    int32_t lo = t->first[s[0]], hi = t->first[s[0] + 1];
    for (int32_t d = 1; lo < hi; d++) {
        if (t->special[lo].n == d)
            see(&t->special[lo++], at, user);
        if (at + (size_t)d >= n)
            return;
        const int32_t end = lower_bound(t, lo, hi, d, s[d] + 1);
        lo = lower_bound(t, lo, hi, d, s[d]);
        hi = end;
    }
}
