/* SPDX-License-Identifier: MIT */
/*
 * libllama takes special tokens out of a text one after the other, longest first, each from left to right where no
 * earlier one was found. Then it tokenises the fragments that remain. The same is done here, over one map of the
 * text's bytes.
 */
#include "text/tokens_marked.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/vectors.h"
#include "text/llama_calls.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a byte of the text. */
enum { PLAIN = 1, CUT = 2 /* a piece begins at it */, TAKEN = 4 /* by a special token */ };

struct found {
    size_t at;
    const struct wnw__special *special;
};

/* Where a special token's text is; another's may be there too. */
struct seen {
    size_t first, last, n;
};

struct walk {
    const struct wnw__tokenizer *tokenizer;
    const struct wnw__marked *in;
    unsigned char *map; /* [in->n] */
    struct seen *seen;  /* [n_special], parallel to tokenizer->special; NULL until one is seen */
    struct found *found;
    size_t n_found, found_cap;
    int32_t *tokens;
    size_t n, cap;
    size_t n_cut;       /* cuts that were passed */
    int32_t *n_at_cut;  /* [in->n_cut] or NULL */
    bool after_special; /* or at the beginning */
    int rc;
};

static void walk_clear(struct walk *w)
{
    free(w->map);
    free(w->seen);
    free(w->found);
}

/* ---- Special tokens ---- */

static void note_seen(const struct wnw__special *s, size_t at, void *user)
{
    struct walk *w = user;
    if (!w->seen && w->rc == WNW_OK) {
        w->seen = calloc((size_t)w->tokenizer->n_special, sizeof *w->seen);
        if (!w->seen)
            w->rc = wnw__fail(WNW_E_NOMEM, "no memory for the special tokens of a text");
    }
    if (!w->seen)
        return;
    struct seen *seen = &w->seen[s - w->tokenizer->special];
    if (seen->n++ == 0)
        seen->first = at;
    seen->last = at;
}

static int draw_map(struct walk *w)
{
    const struct wnw__marked *in = w->in;
    w->map = calloc(in->n + 1, 1);
    if (!w->map)
        return wnw__fail(WNW_E_NOMEM, "no memory for a text of %zu bytes", in->n);
    for (size_t i = 0; i < in->n_plain; i++)
        memset(w->map + in->plain[i].from, PLAIN, in->plain[i].to - in->plain[i].from);
    for (size_t i = 0; i < in->n_cut; i++)
        w->map[in->cut[i]] |= CUT;
    return WNW_OK;
}

static bool is_free(const struct walk *w, const struct wnw__special *s, size_t at)
{
    const unsigned char never = TAKEN | (s->control ? PLAIN : 0);
    for (size_t i = 0; i < (size_t)s->n; i++)
        if (w->map[at + i] & (never | (i > 0 ? CUT : 0)))
            return false;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int take(struct walk *w, const struct wnw__special *s, size_t at)
{
    if (w->n_found == w->found_cap) {
        const size_t cap = w->found_cap * 2 + 16;
        struct found *more = realloc(w->found, cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for %zu special tokens", cap);
        w->found = more;
        w->found_cap = cap;
    }
    w->found[w->n_found++] = (struct found){at, s};
    const size_t end = at + (size_t)s->n;
    for (size_t i = at; i < end; i++)
        w->map[i] |= TAKEN;
    for (size_t i = at; s->lstrip && i > 0 && !(w->map[i - 1] & TAKEN) && is_blank(w->in->text[i - 1]); i--)
        w->map[i - 1] |= TAKEN;
    for (size_t i = end; s->rstrip && i < w->in->n && !(w->map[i] & TAKEN) && is_blank(w->in->text[i]); i++)
        w->map[i] |= TAKEN;
    return WNW_OK;
}

/* Takes a special token out of the text from left to right. */
static int take_all(struct walk *w, const struct wnw__special *s, const struct seen *seen)
{
    const size_t end = seen->last + (size_t)s->n;
    for (size_t at = seen->first; at + (size_t)s->n <= end;) {
        const char *next = memmem(w->in->text + at, end - at, s->text, (size_t)s->n);
        if (!next)
            return WNW_OK;
        at = (size_t)(next - w->in->text);
        const bool is_there = is_free(w, s, at);
        if (is_there)
            WNW_TRY(take(w, s, at));
        at += is_there ? (size_t)s->n : 1;
    }
    return WNW_OK;
}

static int find_special(struct walk *w)
{
    const struct wnw__tokenizer *t = w->tokenizer;
    for (size_t i = 0; i < w->in->n; i++)
        wnw__special_at(t, w->in->text, w->in->n, i, note_seen, w);
    for (int32_t rank = 0; w->seen && w->rc == WNW_OK && rank < t->n_special; rank++) {
        const int32_t i = t->by_rank[rank];
        if (w->seen[i].n > 0)
            w->rc = take_all(w, &t->special[i], &w->seen[i]);
    }
    if (w->n_found > 0)
        qsort(w->found, w->n_found, sizeof *w->found, wnw__ascending_size);
    return w->rc;
}

/* ---- Tokens ---- */

static int make_room(struct walk *w, size_t n)
{
    if (w->cap - w->n >= n)
        return WNW_OK;
    const size_t cap = w->cap + w->cap / 2 + n;
    int32_t *more = cap > INT32_MAX ? NULL : realloc(w->tokens, cap * sizeof *more);
    if (!more)
        return wnw__fail(cap > INT32_MAX ? WNW_E_RANGE : WNW_E_NOMEM, "no memory for %zu tokens", cap);
    w->tokens = more;
    w->cap = cap;
    return WNW_OK;
}

static int put_token(struct walk *w, int32_t id)
{
    WNW_TRY(make_room(w, 1));
    w->tokens[w->n++] = id;
    return WNW_OK;
}

/* Has libllama tokenise text[n], which has no special token that is to be recognised. */
static int put_text(struct walk *w, const char *text, size_t n)
{
    int32_t got = -(int32_t)n - 1; /* no vocabulary makes more tokens than bytes, but a byte may be spelled */
    for (int attempt = 0; got < 0 && attempt < 2; attempt++) {
        if (got == INT32_MIN)
            break;
        WNW_TRY(make_room(w, (size_t)-got));
        WNW_TRY(wnw__llama_tokenize(&got, w->tokenizer->vocab, text, (int32_t)n, w->tokens + w->n,
                                    (int32_t)(w->cap - w->n), false, false));
    }
    if (got < 0)
        return wnw__fail(WNW_E_RANGE, "libllama could not tokenise the text");
    w->n += (size_t)got;
    return WNW_OK;
}

/* libllama copies all ids of the fragment so far for each character that it spells by bytes. */
static int check_spelled(const struct walk *w, const char *text, size_t n)
{
    static const uint64_t most = (uint64_t)1 << 36; /* copied ids, about a minute */
    size_t spelled = 0;
    if (w->tokenizer->merges_words || n < 1 << 16)
        return WNW_OK;
    for (size_t i = 0; i < n; i++)
        spelled += w->tokenizer->spelled[(unsigned char)text[i]] && ((unsigned char)text[i] & 0xc0) != 0x80;
    if ((uint64_t)spelled * n / 2 <= most)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "%zu of %zu bytes of text at byte %zu may have no tokens of their own, for which libllama takes "
        "time by the square; break the text up",
        spelled, n, (size_t)(text - w->in->text));
}

/* A chunk's tokens; a blank comes first where the vocabulary puts one. */
static int put_chunk(struct walk *w, size_t from, size_t to)
{
    const char *text = w->in->text + from;
    const size_t n = to - from;
    const bool blank = w->tokenizer->prefix && w->after_special;
    w->after_special = false;
    WNW_TRY(check_spelled(w, text, n));
    if (!blank)
        return put_text(w, text, n);
    char *prefixed = malloc(n + 1);
    if (!prefixed)
        return wnw__fail(WNW_E_NOMEM, "no memory for a text of %zu bytes", n);
    prefixed[0] = ' ';
    memcpy(prefixed + 1, text, n);
    const int rc = put_text(w, prefixed, n + 1);
    free(prefixed);
    return rc;
}

/* Whether libllama takes the byte into the character of one of the three before it, which it does by the first
 * byte of a character alone. */
static bool may_be_inside(const char *text, size_t i)
{
    for (size_t back = 1; back <= 3 && back <= i; back++) {
        const unsigned char c = (unsigned char)text[i - back];
        const size_t length = 2 + (size_t)(c >= 0xe0) + (size_t)(c >= 0xf0);
        if (c >= 0xc0 && length > back)
            return true;
    }
    return false;
}

/* Whether no token of a SentencePiece vocabulary reaches from the bytes before i over it. */
static bool parts(const struct wnw__tokenizer *t, const char *text, size_t i)
{
    const unsigned char before = (unsigned char)text[i - 1];
    const bool blank = text[i] == ' ' && t->parts_blank && before != ' ' && before < 128; /* 128: U+2581 */
    const bool newline = text[i] == '\n' && t->parts_newline && before != '\n';
    return (blank || newline) && !may_be_inside(text, i);
}

/* The end of a chunk of text[from .. to) whose tokens are those that it has in the whole: SentencePiece reads a
 * whole fragment at once, and no token of most vocabularies has a blank or a newline after another character. */
static size_t end_of_chunk(const struct walk *w, size_t from, size_t to)
{
    enum { CHUNK = 4096 };
    if (w->tokenizer->merges_words || to - from <= CHUNK)
        return to;
    for (size_t i = from + CHUNK; i < to; i++)
        if (parts(w->tokenizer, w->in->text, i))
            return i;
    return to;
}

static int put_fragment(struct walk *w, size_t from, size_t to)
{
    while (from < to) {
        const size_t end = end_of_chunk(w, from, to);
        WNW_TRY(put_chunk(w, from, end));
        from = end;
    }
    return WNW_OK;
}

struct nearest {
    size_t at; /* end of the first character of a control token's text */
    bool there;
};

static void note_control(const struct wnw__special *s, size_t at, void *user)
{
    struct nearest *nearest = user;
    if (!s->control || nearest->there)
        return;
    nearest->there = true;
    nearest->at = at + 1;
    while (nearest->at < at + (size_t)s->n && ((unsigned char)s->text[nearest->at - at] & 0xc0) == 0x80)
        nearest->at++;
}

/* Tokenises a fragment whose bytes spelled a control token by merges: cut inside each text of such a token
 * they cannot. */
static int put_apart(struct walk *w, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        struct nearest nearest = {0};
        wnw__special_at(w->tokenizer, w->in->text, to, i, note_control, &nearest);
        if (!nearest.there || nearest.at >= to)
            continue;
        WNW_TRY(put_fragment(w, from, nearest.at));
        from = nearest.at;
        i = from - 1;
    }
    return from < to ? put_fragment(w, from, to) : WNW_OK;
}

static bool has_control(const struct walk *w, size_t from)
{
    for (size_t i = from; i < w->n; i++)
        if (wnw__is_control(w->tokenizer, w->tokens[i]))
            return true;
    return false;
}

static int put_plain(struct walk *w, size_t from, size_t to)
{
    const size_t n = w->n;
    const bool after_special = w->after_special;
    WNW_TRY(put_fragment(w, from, to));
    if (!has_control(w, n))
        return WNW_OK;
    w->n = n;
    w->after_special = after_special;
    WNW_TRY(put_apart(w, from, to));
    if (has_control(w, n))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the text's bytes %zu to %zu make a control token of the vocabulary", from, to);
    return WNW_OK;
}

static void pass_cuts(struct walk *w, size_t at)
{
    for (; w->n_cut < w->in->n_cut && w->in->cut[w->n_cut] <= at; w->n_cut++)
        if (w->n_at_cut)
            w->n_at_cut[w->n_cut] = (int32_t)w->n;
}

static size_t end_of_fragment(const struct walk *w, size_t from)
{
    size_t to = from + 1;
    while (to < w->in->n && !(w->map[to] & (TAKEN | CUT)))
        to++;
    return to;
}

static int put_all(struct walk *w)
{
    size_t next = 0; /* of w->found */
    for (size_t i = 0; i < w->in->n;) {
        pass_cuts(w, i);
        if (next < w->n_found && w->found[next].at == i) {
            const struct wnw__special *s = w->found[next++].special;
            WNW_TRY(put_token(w, s->id));
            w->after_special = true;
            i += (size_t)s->n;
        } else if (w->map[i] & TAKEN) {
            i++; /* white space that a special token swallowed */
        } else {
            const size_t to = end_of_fragment(w, i);
            WNW_TRY(put_plain(w, i, to));
            i = to;
        }
    }
    return WNW_OK;
}

static int put_begin(struct walk *w)
{
    const struct llama_vocab *vocab = w->tokenizer->vocab;
    const bool bos = w->in->add_special && llama_vocab_get_add_bos(vocab);
    w->after_special = !w->in->follows || bos || wnw__is_special(w->tokenizer, w->in->before);
    return bos ? put_token(w, llama_vocab_bos(vocab)) : WNW_OK;
}

static int put_end(struct walk *w)
{
    const struct llama_vocab *vocab = w->tokenizer->vocab;
    pass_cuts(w, w->in->n);
    return w->in->add_special && llama_vocab_get_add_eos(vocab) ? put_token(w, llama_vocab_eos(vocab))
                                                                : WNW_OK;
}

static int walk_all(void *walk)
{
    struct walk *w = walk;
    WNW_TRY(make_room(w, 8));
    WNW_TRY(draw_map(w));
    WNW_TRY(find_special(w));
    WNW_TRY(put_begin(w));
    WNW_TRY(put_all(w));
    return put_end(w);
}

/* Walks on a stack that the longest run of the text needs. */
static int walk_safely(struct walk *w)
{
    size_t stack;
    WNW_TRY(wnw__pretokenizer_stack(&stack, &w->tokenizer->pre, w->in->text, w->in->n));
    if (stack == 0)
        return walk_all(w);
    WNW_TRY(wnw__memory_check(stack / 2, "the stack of the tokenizer")); /* half of it is never used */
    return wnw__on_stack(stack, walk_all, w);
}

int wnw__tokenize_marked(const wnw_model *m, const struct wnw__marked *in, int32_t **tokens,
                         int32_t *n_tokens, int32_t *n_at_cut)
{
    *tokens = NULL;
    *n_tokens = 0;
    if (!m->tokenizer)
        return wnw__fail(WNW_E_UNSUPPORTED, "this model has no tokenizer; give token ids with --tokens");
    if (in->n > INT32_MAX / 2)
        return wnw__fail(WNW_E_RANGE, "a text of %zu bytes is too long", in->n);
    struct walk w = {.tokenizer = m->tokenizer, .in = in, .n_at_cut = n_at_cut};
    const int rc = walk_safely(&w);
    walk_clear(&w);
    if (rc != WNW_OK) {
        free(w.tokens);
        return rc;
    }
    *tokens = w.tokens;
    *n_tokens = (int32_t)w.n;
    return WNW_OK;
}

int wnw__tokenize_plain(const wnw_model *m, const char *text, size_t n, const int32_t *before,
                        int32_t **tokens, int32_t *n_tokens)
{
    const wnw_bytes all = {0, n};
    const struct wnw__marked in = {.text = text,
                                   .n = n,
                                   .plain = &all,
                                   .n_plain = 1,
                                   .follows = before != NULL,
                                   .before = before ? *before : -1};
    return wnw__tokenize_marked(m, &in, tokens, n_tokens, NULL);
}
