/* SPDX-License-Identifier: MIT */
/*
 * Special tokens, input between them and cuts. libllama, which tokenises whole texts alone, is the reference:
 * texts without input and cuts must be tokenised as it does, and pieces must add up to the whole.
 */
#include "gguf_files.h"
#include "helpers.h"
#include "peek_text.h"

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, LEN = 4096 };

struct ids {
    int32_t *id;
    int32_t n;
};

static void drop(struct ids *a)
{
    free(a->id);
    *a = (struct ids){0};
}

/* ---- libllama's own answer ---- */

static struct llama_model *reference_open(const char *path)
{
    struct llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    struct llama_model *m = llama_model_load_from_file(path, p);
    assert_non_null(m);
    return m;
}

static struct ids reference(const struct llama_model *m, const char *text, size_t n, bool add, bool parse)
{
    struct ids a = {calloc(2 * n + 16, sizeof *a.id), 0};
    assert_non_null(a.id);
    a.n = llama_tokenize(llama_model_get_vocab(m), text, (int32_t)n, a.id, (int32_t)(2 * n + 16), add, parse);
    assert_cmp(a.n, >=, 0);
    return a;
}

/* ---- Vocabularies ---- */

struct vocabulary {
    const char *name;
    const char *from;
    void (*change)(struct test_gguf *f); /* NULL: the file as it is */
};

static void prefix_on(struct test_gguf *f)
{
    gguf_set_val_bool(f->gguf, "tokenizer.ggml.add_space_prefix", true);
}

/* As Llama 2's files, which do not have the key. */
static void prefix_unsaid(struct test_gguf *f)
{
    gguf_remove_key(f->gguf, "tokenizer.ggml.add_space_prefix");
}

/* Special tokens of one length that overlap, one that is the beginning of another, user-defined ones. */
static void crossed(struct test_gguf *f)
{
    prefix_on(f);
    test_gguf_set_token(f, 300, "aba", CONTROL);
    test_gguf_set_token(f, 301, "bab", CONTROL);
    test_gguf_set_token(f, 302, "<eos><", CONTROL);
    test_gguf_set_token(f, 303, "\n\n", USER_DEFINED);
    test_gguf_set_token(f, 304, "\n\n\n", USER_DEFINED);
    test_gguf_set_token(f, 305, "ab\n", USER_DEFINED);
}

/* libllama swallows white space after the special tokens of models of this name. */
static void swallows_after(struct test_gguf *f)
{
    static const char *const names[] = {"</s>", "<unk>", "<s>", "<|user|>"};
    gguf_set_val_str(f->gguf, "general.name", "Phi-3 mini");
    for (int i = 0; i < 4; i++)
        test_gguf_set_token(f, 300 + i, names[i], CONTROL);
}

/* And before this token of this pre-tokenizer. */
static void swallows_before(struct test_gguf *f)
{
    gguf_set_val_str(f->gguf, "tokenizer.ggml.pre", "jina-v2-code");
    test_gguf_set_token(f, 300, "<mask>", CONTROL);
}

static const char bpe[] = "tiny/chat/smollm2.gguf", spm[] = "tiny/chat/gemma3.gguf";

static const struct vocabulary vocabularies[] = {
    {"byte pairs", bpe, NULL},
    {"qwen2", "tiny/chat/qwen2.5.gguf", NULL},
    {"smollm2-135m", "smollm2-135m.gguf", NULL},
    {"sentencepiece", spm, NULL},
    {"sentencepiece, prefix", spm, prefix_on},
    {"sentencepiece, no key", spm, prefix_unsaid},
    {"sentencepiece, crossed", spm, crossed},
    {"byte pairs, crossed", bpe, crossed},
    {"swallows after", bpe, swallows_after},
    {"swallows before", bpe, swallows_before},
};
enum { N_VOCABULARIES = sizeof vocabularies / sizeof *vocabularies };

struct pair {
    const char *name;
    wnw_model *m;
    struct llama_model *reference;
};

static struct pair open_pair(const struct vocabulary *v)
{
    struct test_gguf f = test_gguf_load(v->from);
    struct pair p = {.name = v->name};
    if (v->change)
        v->change(&f);
    test_gguf_write(&f);
    assert_ok(wnw_model_open(&p.m, f.path, NULL));
    p.reference = reference_open(f.path);
    test_gguf_clear(&f);
    return p;
}

static void close_pair(struct pair *p)
{
    wnw_model_free(p->m);
    llama_model_free(p->reference);
}

/* ---- Texts ---- */

/* What random texts are put together from, beside texts of special tokens. */
static const char *const pieces[] = {
    "a",
    "b",
    "ab",
    "aba",
    "the",
    " the",
    "e",
    "er",
    "s",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t \n",
    "1",
    "23",
    "\xc3\xa9",
    "\xe4\xb8\x80",
    "\xf0\x9f\x98\x80",
    "<",
    "<|",
    "<eo",
    "|>",
    "\xe2\x96\x81",
    "\xff",
    "'s",
    ".",
    ", ",
};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* The text of some special token. */
static const char *special_text(const struct llama_vocab *vocab, uint32_t r)
{
    const int32_t n = llama_vocab_n_tokens(vocab);
    for (int32_t i = 0, id = (int32_t)(r % (uint32_t)n); i < n; i++, id = (id + 1) % n)
        if (llama_vocab_get_attr(vocab, id) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED))
            return llama_vocab_get_text(vocab, id);
    return "";
}

static size_t make_text(char *text, const struct pair *p, uint32_t *seed)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(p->reference);
    const int n_pieces = (int)(next(seed) % 24);
    size_t n = 0;
    for (int i = 0; i < n_pieces; i++) {
        const char *s = next(seed) % 4 == 0 ? special_text(vocab, next(seed)) : pieces[next(seed) % N_PIECES];
        if (n + strlen(s) < LEN) {
            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
    }
    return n;
}

static void fail_ids(const struct pair *p, const char *what, const char *text, size_t n,
                     const struct ids *got, const struct ids *want)
{
    char shown[2048] = "";
    for (int32_t i = 0; (i < got->n || i < want->n) && strlen(shown) + 32 < sizeof shown; i++)
        snprintf(shown + strlen(shown), 32, " %d/%d", i < got->n ? got->id[i] : -1,
                 i < want->n ? want->id[i] : -1);
    fail_msg("%s, %s, \"%.*s\": got/expected%s", p->name, what, (int)n, text, shown);
}

static void assert_ids(const struct pair *p, const char *what, const char *text, size_t n,
                       const struct ids *got, const struct ids *want)
{
    if (got->n != want->n || memcmp(got->id, want->id, (size_t)got->n * sizeof *got->id) != 0)
        fail_ids(p, what, text, n, got, want);
}

/* ---- Whole texts ---- */

static void check_whole(const struct pair *p, const char *text, size_t n)
{
    for (int flags = 0; flags < 4; flags++) {
        const bool add = flags & 1, parse = flags & 2;
        struct ids got = {0}, want = reference(p->reference, text, n, add, parse);
        assert_ok(wnw_tokenize(p->m, text, n, add, parse, &got.id, &got.n));
        assert_ids(p, parse ? "parsed" : "plain", text, n, &got, &want);
        drop(&got);
        drop(&want);
    }
}

static void whole_texts_as_libllama(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABULARIES; v++) {
        struct pair p = open_pair(&vocabularies[v]);
        char text[LEN];
        uint32_t seed = 7;
        check_whole(&p, "", 0);
        for (int i = 0; i < 400; i++)
            check_whole(&p, text, make_text(text, &p, &seed));
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_texts_as_libllama),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
