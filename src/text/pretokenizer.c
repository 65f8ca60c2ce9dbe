/* SPDX-License-Identifier: MIT */
#include "text/pretokenizer.h"

#include <stdio.h>
#include <string.h>

/* Measured with GCC's std::regex on x86-64: up to 330 bytes a character, and 12 KiB for a call. */
enum { STACK_PER_CHARACTER = 1024, STACK_OF_A_CALL = 256 * 1024 };
/* A run that every thread has the stack for; the smallest that pthreads allow is 16 KiB, and libllama's own
 * call takes most of that. */
enum { SHORT = 32 };
/* The sum of the squares of slow runs; 50 ns each on a machine of 2023. */
static const uint64_t most_squares = (uint64_t)1 << 28;

/* Pre-tokenizers without std::regex, or with patterns of one character alone. A name that is missing here is
 * taken for one that recurses. */
static const char *const flat[] = {
    "a.x-4.0",
    "chatglm-bpe",
    "codeshell",
    "command-r",
    "dbrx",
    "deepseek-r1-qwen",
    "exaone",
    "exaone4",
    "f2llmv2",
    "falcon-h1",
    "falcon3",
    "gemma4",
    "gigachat",
    "glm4",
    "glm5",
    "gpt-2",
    "granite-docling",
    "granite-embed-multi-311m",
    "grok-2",
    "hunyuan",
    "jais",
    "jina-de",
    "jina-es",
    "jina-v1-en",
    "jina-v2-code",
    "jina-v2-de",
    "jina-v2-es",
    "jina-v5-nano",
    "kimi-k2",
    "kormo",
    "laguna",
    "lfm2",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "megrez",
    "mellum",
    "mellum2",
    "midm-2.0",
    "minerva-7b",
    "modern-bert",
    "mpt",
    "olmo",
    "phi-2",
    "pixtral",
    "qwen2",
    "qwen35",
    "refact",
    "roberta-bpe",
    "sarvam-moe",
    "smaug-bpe",
    "smollm",
    "solar-open",
    "stablelm2",
    "starcoder",
    "trillion",
};

static const struct wnw__pretokenizer peculiar[] = {
    {.name = "exaone-moe", .recurses = true, .across_blanks = true},
    {.name = "deepseek-llm", .recurses = true, .slow = WNW_SLOW_BLANKS},
    {.name = "superbpe", .recurses = true, .slow = WNW_SLOW_DIGITS},
};

struct wnw__pretokenizer wnw__pretokenizer_named(const char *name)
{
    struct wnw__pretokenizer p = {.recurses = true};
    name = name ? name : "default";
    for (size_t i = 0; i < sizeof peculiar / sizeof *peculiar; i++)
        if (strcmp(name, peculiar[i].name) == 0)
            return peculiar[i];
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
        if (strcmp(name, flat[i]) == 0)
            p.recurses = false;
    snprintf(p.name, sizeof p.name, "%s", name);
    return p;
}

/* ---- Runs ---- */

/* Bytes of the character at s[n > 0] as libllama counts: a byte that is no UTF-8 is one by itself. */
static size_t character(const unsigned char *s, size_t n)
{
    if (s[0] < 0xc0 || s[0] >= 0xf8)
        return 1;
    const size_t want = 2 + (size_t)(s[0] >= 0xe0) + (size_t)(s[0] >= 0xf0);
    for (size_t i = 1; i < want; i++)
        if (i >= n || (s[i] & 0xc0) != 0x80)
            return 1;
    return want;
}

static bool is_newline(unsigned char c)
{
    return c == '\n' || c == '\r';
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

/* Whether the character may be white space beyond ASCII. */
static bool is_wide_space(const unsigned char *s, size_t n)
{
    static const unsigned char begins[][2] = {{0xc2, 0x85}, {0xc2, 0xa0}, {0xe1, 0x9a},
                                              {0xe2, 0x80}, {0xe2, 0x81}, {0xe3, 0x80}};
    for (size_t i = 0; n > 1 && i < sizeof begins / sizeof *begins; i++)
        if (s[0] == begins[i][0] && s[1] == begins[i][1])
            return true;
    return false;
}

/* Whether no match of any pattern reaches from the byte before s to s[n]: words do not go on after a blank,
 * and after a newline only white space goes on, and slashes, which some patterns take for it. */
static bool ends_run(const struct wnw__pretokenizer *p, unsigned char before, const unsigned char *s,
                     size_t n)
{
    if (is_newline(before))
        return !is_newline(*s) && !is_blank(*s) && *s != '/' && !is_wide_space(s, n);
    return !p->across_blanks && !is_blank(before) && is_blank(*s);
}

struct run {
    size_t at, characters;
};

static struct run longest_run(const struct wnw__pretokenizer *p, const unsigned char *s, size_t n)
{
    struct run now = {0}, longest = {0};
    for (size_t i = 0; i < n; i += character(s + i, n - i)) {
        if (i > 0 && ends_run(p, s[i - 1], s + i, n - i))
            now = (struct run){.at = i};
        if (++now.characters > longest.characters)
            longest = now;
    }
    return longest;
}

static bool is_slow(enum wnw__slow slow, const unsigned char *s, size_t n)
{
    return slow == WNW_SLOW_DIGITS ? *s >= '0' && *s <= '9' : is_blank(*s) || is_wide_space(s, n);
}

/* Counts the characters of a run of slow ones and moves *i after it, by one character at least. */
static size_t slow_run(size_t *i, enum wnw__slow slow, const unsigned char *s, size_t n)
{
    size_t run = 0;
    while (*i < n && is_slow(slow, s + *i, n - *i)) {
        *i += character(s + *i, n - *i);
        run++;
    }
    if (run == 0)
        *i += character(s + *i, n - *i);
    return run;
}

static int check_time(const struct wnw__pretokenizer *p, const unsigned char *s, size_t n)
{
    uint64_t squares = 0;
    for (size_t i = 0, at = 0; p->slow != WNW_SLOW_NOTHING && i < n; at = i) {
        const size_t run = slow_run(&i, p->slow, s, n);
        squares += (uint64_t)run * run;
        if (squares > most_squares)
            return wnw__fail(
                WNW_E_RANGE,
                "%zu %s in a row at byte %zu of the text: the pre-tokenizer %s takes time by the "
                "square of them; break them up",
                run, p->slow == WNW_SLOW_DIGITS ? "digits" : "blanks", at, p->name);
    }
    return WNW_OK;
}

int wnw__pretokenizer_stack(size_t *bytes, const struct wnw__pretokenizer *p, const char *text, size_t n)
{
    *bytes = 0;
    if (!p->recurses || n <= SHORT)
        return WNW_OK;
    const unsigned char *s = (const unsigned char *)text;
    WNW_TRY(check_time(p, s, n));
    const struct run longest = longest_run(p, s, n);
    if (longest.characters > WNW_PRETOKENIZER_LONGEST)
        return wnw__fail(
            WNW_E_RANGE,
            "%zu characters without a blank at byte %zu of the text: the pre-tokenizer %s takes at "
            "most %d; break them up",
            longest.characters, longest.at, p->name, WNW_PRETOKENIZER_LONGEST);
    if (longest.characters > SHORT)
        *bytes = STACK_OF_A_CALL + longest.characters * STACK_PER_CHARACTER;
    return WNW_OK;
}
