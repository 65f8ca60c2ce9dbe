/* SPDX-License-Identifier: MIT */
/* Options whose text is a list, or one word of several. */
#include "eval/run/lists.h"

#include "app/console.h"
#include "app/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char **eval_list_words(const char *list, int mark)
{
    const size_t bytes = strlen(list) + 1;
    const char marks[] = {(char)mark, '\0'};
    char **words = malloc((bytes + 1) * sizeof *words + bytes);
    if (!words)
        return NULL;
    char *copy = (char *)(words + bytes + 1);
    size_t n = 0;
    memcpy(copy, list, bytes);
    while (*copy) {
        const size_t len = mark == EVAL_RECIPES ? app_recipe_length(copy) : strcspn(copy, marks);
        const bool more = copy[len] != '\0';
        copy[len] = '\0';
        if (len > 0)
            words[n++] = copy;
        copy += len + more;
    }
    words[n] = NULL;
    return words;
}

int eval_each_word(const char *option, const char *list, int mark, int (*add)(void *user, const char *word),
                   void *user)
{
    char **words = eval_list_words(list, mark);
    int rc = !words    ? app_fail(APP_FAILED, "out of memory for --%s", option)
             : !*words ? app_fail(APP_BAD_INPUT, "--%s is empty", option)
                       : APP_OK;
    for (char **w = words; rc == APP_OK && *w; w++)
        rc = add(user, *w);
    free(words);
    return rc;
}

/* ---- Words ---- */

int eval_check_words(const struct eval_args *a)
{
    const struct {
        const char *option, *given, *words, *list; /* words: each with blanks around it */
    } options[] = {
        {"turns", a->turns, " multi_turn multi_request ", "multi_turn or multi_request"},
        {"recompress", a->recompress, " never each-turn ", "never or each-turn"},
        {"lb-chat", a->lb_chat, " official all ", "official or all"},
        {"lb-prefix", a->lb_prefix, " auto assistant user ", "auto, assistant or user"},
        {"needle", a->needle, " rand num words sf ", "rand, num, words or sf"},
        {"niah-compat", a->niah_compat, " none compresskv ", "none or compresskv"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char word[64];
        const int len = snprintf(word, sizeof word, " %s ", options[i].given);
        if (len >= (int)sizeof word || strchr(options[i].given, ' ') || !strstr(options[i].words, word))
            return app_fail(APP_BAD_INPUT, "--%s '%s' is unknown; use %s", options[i].option,
                            options[i].given, options[i].list);
    }
    return APP_OK;
}

/* ---- Sizes ---- */

/* Lists of sizes that have names, as the papers sweep them. `kept`: the numbers are shares that stay. */
struct grid {
    const char *name;
    int n;
    double at[9];
};
static const struct grid ratio_grids[] = {{"auc9", 9, {0, .1, .25, .4, .5, .6, .7, .8, .9}},
                                          {"lag", 4, {.25, .5, .75, .875}},
                                          {"crit", 4, {.2, .4, .6, .8}},
                                          {.name = NULL}};
static const struct grid budget_grids[] = {{"abs", 5, {2048, 1024, 512, 256, 128}}, {.name = NULL}};
static const struct grid no_grids[] = {{.name = NULL}};

struct axis {
    const char *option, *range;
    wnw_size_kind kind;
    const struct grid *grids;
    double min, max;
};
static const struct axis axes[] = {
    {"ratios", "at least 0 and less than 1", WNW_SIZE_RATIO, ratio_grids, 0, 0.9999999999999999},
    {"budgets", "1 to 2147483647", WNW_SIZE_BUDGET, budget_grids, 1, 2147483647},
    {"kv-bytes", "1 byte to 4294967296G", WNW_SIZE_BYTES, no_grids, 1, 4611686018427387904.0},
};

static wnw_size size_of(const struct axis *axis, double x)
{
    return (wnw_size){.kind = axis->kind,
                      .ratio = axis->kind == WNW_SIZE_RATIO ? x : 0,
                      .budget = axis->kind == WNW_SIZE_BUDGET ? (int64_t)x : 0,
                      .bytes = axis->kind == WNW_SIZE_BYTES ? (uint64_t)x : 0};
}

/* Sizes that are being read. */
struct sizes {
    const struct axis *axis;
    wnw_size *at; /* [*n] */
    int32_t *n;
};

static int add_size(struct sizes *s, wnw_size size)
{
    char text[40], other[40];
    eval_size_text(text, sizeof text, &size);
    for (int32_t i = 0; i < *s->n; i++) {
        eval_size_text(other, sizeof other, &s->at[i]);
        if (strcmp(text, other) == 0)
            return APP_OK;
    }
    if (*s->n == EVAL_MAX_SIZES)
        return app_fail(APP_BAD_INPUT, "--%s: at most %d sizes", s->axis->option, EVAL_MAX_SIZES);
    s->at[(*s->n)++] = size;
    return APP_OK;
}

static bool parse_number(double *x, const struct axis *axis, const char *word)
{
    int64_t whole = 0;
    if (axis->kind == WNW_SIZE_RATIO)
        return app_parse_real(x, word);
    const bool good =
        axis->kind == WNW_SIZE_BYTES ? app_parse_bytes(&whole, word) : app_parse_int(&whole, word);
    *x = (double)whole;
    return good;
}

static int add_word(void *user, const char *word)
{
    struct sizes *s = user;
    const struct axis *axis = s->axis;
    double x;
    int rc = APP_OK;
    for (const struct grid *g = axis->grids; g->name; g++) {
        if (strcmp(g->name, word) != 0)
            continue;
        for (int i = 0; rc == APP_OK && i < g->n; i++)
            rc = add_size(s, size_of(axis, g->at[i]));
        return rc;
    }
    if (strcmp(word, "own") == 0)
        return add_size(s, (wnw_size){.kind = WNW_SIZE_NONE});
    if (!parse_number(&x, axis, word))
        return app_fail(APP_BAD_INPUT, "--%s: '%s' is neither a number nor the name of a list of sizes",
                        axis->option, word);
    if (!(x >= axis->min && x <= axis->max))
        return app_fail(APP_BAD_INPUT, "--%s: %s is out of range; it must be %s", axis->option, word,
                        axis->range);
    return add_size(s, size_of(axis, x));
}

int eval_list_sizes(wnw_size *sizes, int32_t *n, const struct eval_args *args, const struct eval_part *part)
{
    const bool own = !args->ratios && !args->budgets && !args->kv_bytes;
    const char *const given[] = {own ? part->ratios : args->ratios, own ? part->budgets : args->budgets,
                                 args->kv_bytes};
    int which = -1;
    *n = 0;
    for (int i = 0; i < 3; i++) {
        if (given[i] && which >= 0)
            return app_fail(APP_BAD_INPUT,
                            "--ratios, --budgets and --kv-bytes exclude each other; give one of them");
        which = given[i] ? i : which;
    }
    struct sizes s = {&axes[which < 0 ? 0 : which], sizes, n};
    return eval_each_word(s.axis->option, which < 0 ? "0.5" : given[which], ',', add_word, &s);
}

void eval_size_text(char *out, size_t n, const wnw_size *size)
{
    switch (size->kind) {
    case WNW_SIZE_RATIO:
        snprintf(out, n, "ratio=%.12g", size->ratio);
        return;
    case WNW_SIZE_BUDGET:
        snprintf(out, n, "budget=%lld", (long long)size->budget);
        return;
    case WNW_SIZE_BYTES:
        snprintf(out, n, "bytes=%llu", (unsigned long long)size->bytes);
        return;
    case WNW_SIZE_NONE:
        break;
    }
    snprintf(out, n, "own");
}
