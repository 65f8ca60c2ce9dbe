/* SPDX-License-Identifier: MIT */
/*
 * Long runs of one kind of character, with every pre-tokenizer that libllama knows, on a thread with a small
 * stack. libllama's patterns call themselves for every character, so the process used to end there. Everything
 * runs in a child process, so that a crash is seen and named.
 */
#include "child.h"
#include "gguf_copy.h"
#include "helpers.h"
#include "peek_text.h"

#include <llama.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "": a file that names none. */
static const char *const names[] = {
    "",
    "a.x-4.0",
    "afmoe",
    "bailingmoe",
    "bailingmoe2",
    "bloom",
    "chameleon",
    "chatglm-bpe",
    "codeshell",
    "cohere2moe",
    "command-r",
    "dbrx",
    "deepseek-coder",
    "deepseek-llm",
    "deepseek-r1-qwen",
    "deepseek-v3",
    "default",
    "exaone",
    "exaone-moe",
    "exaone4",
    "f2llmv2",
    "falcon",
    "falcon-h1",
    "falcon3",
    "gemma4",
    "gigachat",
    "glm4",
    "glm5",
    "gpt-2",
    "gpt-4o",
    "gpt3-finnish",
    "granite-docling",
    "granite-embed-multi-311m",
    "granite-embed-multi-97m",
    "grok-2",
    "hunyuan",
    "hunyuan-dense",
    "hy_v4",
    "jais",
    "jais-2",
    "jina-de",
    "jina-es",
    "jina-v1-en",
    "jina-v2-code",
    "jina-v2-de",
    "jina-v2-es",
    "jina-v5-nano",
    "joyai-llm",
    "kanana2",
    "kimi-k2",
    "kormo",
    "laguna",
    "lfm2",
    "llada-moe",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "llama4",
    "megrez",
    "mellum",
    "mellum2",
    "midm-2.0",
    "minerva-7b",
    "minicpm5",
    "minimax-m2",
    "modern-bert",
    "mpt",
    "olmo",
    "phi-2",
    "pixtral",
    "poro-chat",
    "qwen2",
    "qwen35",
    "refact",
    "roberta-bpe",
    "sarvam-moe",
    "seed-coder",
    "smaug-bpe",
    "smollm",
    "solar-open",
    "spark2_5",
    "stablelm2",
    "starcoder",
    "superbpe",
    "talkie",
    "tekken",
    "tiny_aya",
    "trillion",
    "ufakzeka",
    "viking",
    "whitespace",
    "youtu",
};
enum { N_NAMES = sizeof names / sizeof *names };

/* The parts of a run, and the text after it. */
struct run {
    const char *unit, *end;
};
static const struct run runs[] = {
    {"a", ""},
    {"A", ""},
    {"aA", ""},
    {"\n", ""},
    {"\r\n", "x"},
    {" ", ""},
    {" ", "5"},
    {" ", "x"},
    {"\t", "-"},
    {"-", ""},
    {"'s", ""},
    {"1", ""},
    {"1", "x"},
    {"a ", "1"},
    {"/\n", ""},
    {".a", ""},
    {"\xc3\xa9", ""},
    {"\xe4\xb8\x80", ""},
    {"\xe3\x80\x80", "5"},
    {"\xe0\xa5\x8d", ""},
    {"\xf0\x9f\x98\x80", ""},
    {"\xff", ""},
    {"<|im_end|>", ""},
};
enum { N_RUNS = sizeof runs / sizeof *runs, SMALL_STACK = 64 * 1024 };

struct text {
    char *s;
    size_t n;
};

static struct text repeat(const struct run *run, size_t times)
{
    const size_t n_unit = strlen(run->unit), n_end = strlen(run->end);
    struct text t = {malloc(n_unit * times + n_end + 1), n_unit * times + n_end};
    assert_non_null(t.s);
    for (size_t i = 0; i < times; i++)
        memcpy(t.s + i * n_unit, run->unit, n_unit);
    memcpy(t.s + n_unit * times, run->end, n_end + 1);
    return t;
}

/* ---- In the child ---- */

static void fail_child(const char *pre, const struct run *run, size_t times, const char *why)
{
    fprintf(stderr, "pre-tokenizer '%s', %zu of \"%s\" and \"%s\": %s\n", pre, times, run->unit, run->end,
            why);
    fflush(stderr);
    _exit(1);
}

struct call {
    const wnw_model *m;
    struct text text;
    int rc;
    int32_t *tokens, n;
    char error[512];
};

static void *tokenize(void *data)
{
    struct call *c = data;
    c->rc = wnw_tokenize(c->m, c->text.s, c->text.n, false, false, &c->tokens, &c->n);
    snprintf(c->error, sizeof c->error, "%s", c->rc == WNW_OK ? "" : wnw_last_error());
    return NULL;
}

static void call_on_small_stack(struct call *c)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, SMALL_STACK) ||
        pthread_create(&thread, &attr, tokenize, c) || pthread_join(thread, NULL))
        _exit(2);
    pthread_attr_destroy(&attr);
}

/* A sentence with a place is an answer too, but not for runs that honest texts have. */
static bool is_refused(const struct call *c, size_t times)
{
    return c->rc == WNW_E_RANGE && times > 4096 && strstr(c->error, "at byte") &&
           strstr(c->error, "break them up");
}

static void check_same(const struct call *c, const struct llama_vocab *reference, const char *pre,
                       const struct run *run, size_t times)
{
    const int32_t cap = (int32_t)c->text.n * 4 + 16;
    int32_t *want = malloc((size_t)cap * sizeof *want);
    const int32_t n =
        want ? llama_tokenize(reference, c->text.s, (int32_t)c->text.n, want, cap, false, false) : -1;
    if (n != c->n || memcmp(want, c->tokens, (size_t)n * sizeof *want) != 0)
        fail_child(pre, run, times, "libllama makes other tokens");
    free(want);
}

/* The tokens spell the text; invalid bytes are replaced, and vocabularies without byte tokens drop some. */
static void check_spelled(const struct call *c, const char *pre, const struct run *run, size_t times)
{
    char *text;
    if (strstr(pre, "gemma4") || strstr(pre, "sarvam") || strstr(pre, "311m") || run->unit[0] == '\xff')
        return;
    if (wnw_detokenize(c->m, c->tokens, c->n, &text) != WNW_OK || strcmp(text, c->text.s) != 0)
        fail_child(pre, run, times, "the tokens spell another text");
    wnw_free(text);
}

static void check_run(const wnw_model *m, const struct llama_vocab *reference, const char *pre,
                      const struct run *run, size_t times)
{
    struct call c = {.m = m, .text = repeat(run, times)};
    call_on_small_stack(&c);
    if (c.rc != WNW_OK && !is_refused(&c, times))
        fail_child(pre, run, times, c.error);
    if (c.rc == WNW_OK && reference)
        check_same(&c, reference, pre, run, times);
    if (c.rc == WNW_OK)
        check_spelled(&c, pre, run, times);
    wnw_free(c.tokens);
    free(c.text.s);
}

/* Runs of a number of characters or other parts; with `compare` libllama's own function cuts them, too. */
struct round {
    size_t times, first, n_runs;
    bool compare;
};

/* Rounds of one pre-tokenizer. */
struct job {
    const char *pre;
    const struct round *round;
    size_t n;
};

static void check_round(const wnw_model *m, const struct llama_vocab *reference, const char *pre,
                        const struct round *r)
{
    for (size_t i = r->first; i < r->first + r->n_runs; i++)
        check_run(m, r->compare ? reference : NULL, pre, &runs[i], r->times);
}

static void run_job(const struct job *job, const char *path)
{
    wnw_model *m;
    const int rc = wnw_model_open(&m, path, NULL);
    if (rc != WNW_OK && strstr(wnw_last_error(), "pre-tokenizer")) /* unknown to an older libllama */
        _exit(0);
    if (rc != WNW_OK)
        _exit(3);
    struct llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    const struct llama_model *reference = llama_model_load_from_file(path, p);
    if (!reference)
        _exit(4);
    for (size_t i = 0; i < job->n; i++)
        check_round(m, llama_model_get_vocab(reference), job->pre, &job->round[i]);
    _exit(0);
}

/* ---- The parent ---- */

static void check(const struct job *job)
{
    struct test_gguf_copy f = test_gguf_copy_of("tiny/chat/smollm2.gguf");
    gguf_set_val_str(f.file.g, "tokenizer.ggml.pre", job->pre);
    if (!*job->pre)
        gguf_remove_key(f.file.g, "tokenizer.ggml.pre");
    test_gguf_copy_write(&f);
    char what[80];
    snprintf(what, sizeof what, "pre-tokenizer '%s'", job->pre);
    const pid_t child = test_child(0);
    if (child == 0)
        run_job(job, f.path);
    const int code = test_child_status(child, what);
    test_gguf_copy_remove(&f);
    if (code != 0)
        fail_msg("%s: status %d", what, code);
}

/* Short ones as libllama, of up to 500 characters: a pre-tokenizer that recurses and is said not to would need twice the stack there. Of
 * those that do recurse, or are taken to, long ones, which used to end a process: with the stack of short ones they would need ten times
 * what they got. Those that take time by the square must be so long that they are refused. */
static void runs_of_every_kind(void **state)
{
    (void)state;
    struct round rounds[] = {{.times = 1, .n_runs = N_RUNS, .compare = true},
                             {.times = 33, .n_runs = N_RUNS, .compare = true},
                             {.times = 500, .n_runs = N_RUNS, .compare = true},
                             {.n_runs = N_RUNS}};
    enum { N_ROUNDS = sizeof rounds / sizeof *rounds };
    for (int i = 0; i < N_NAMES; i++) {
        const bool slow = strcmp(names[i], "superbpe") == 0 || strcmp(names[i], "deepseek-llm") == 0;
        const bool recurses = wnw__pretokenizer_named(*names[i] ? names[i] : NULL).recurses;
        rounds[N_ROUNDS - 1].times = slow ? 27000 : 3000;
        check(&(struct job){names[i], rounds, recurses ? N_ROUNDS : N_ROUNDS - 1});
    }
}

/* Two million of one letter: pre-tokenizers that recurse say where, the others answer. */
static void two_million(void **state)
{
    (void)state;
    static const char *const some[] = {"",       "tekken",   "deepseek-llm", "deepseek-coder",
                                       "gpt-4o", "superbpe", "bloom",        "exaone-moe",
                                       "afmoe",  "jais-2",   "smollm"};
    static const struct round once = {.times = 2000000, .n_runs = 1};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        check(&(struct job){some[i], &once, 1});
}

/* As long as a run may be; the stack is there. */
static void longest(void **state)
{
    (void)state;
    static const struct round letters = {.times = 1000000, .n_runs = 1},
                              cases = {.times = 500000, .first = 2, .n_runs = 1};
    check(&(struct job){"tekken", &letters, 1});
    check(&(struct job){"exaone-moe", &cases, 1});
}

/* A name of a later libllama. */
static void not_known(void **state)
{
    (void)state;
    const struct wnw__pretokenizer p = wnw__pretokenizer_named("of-a-later-libllama");
    assert_true(p.recurses);
    assert_string_equal(p.name, "of-a-later-libllama");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_known), cmocka_unit_test(runs_of_every_kind),
                                       cmocka_unit_test(longest), cmocka_unit_test(two_million)};
    return cmocka_run_group_tests_name("pre-tokenizers", tests, NULL, NULL);
}
