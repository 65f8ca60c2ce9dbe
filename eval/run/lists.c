/* SPDX-License-Identifier: MIT */
/* Options whose text is a list, or one word of several. */
#include "eval/run/lists.h"

#include "app/console.h"
#include "app/values.h"
#include "base/strings.h"
#include "eval/base/grow.h"
#include "eval/tasks/lists.h"

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
    int rc = words ? APP_OK : app_fail(APP_FAILED, "out of memory for --%s", option);
    if (words && !*words)
        rc = app_fail(APP_BAD_INPUT, "--%s is empty", option);
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
        {"split", a->split, " test dev ", "test or dev"},
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

/* ---- Numbers ---- */

static bool parse_whole(double *x, const char *word)
{
    int64_t whole = 0;
    const bool good = app_parse_int(&whole, word);
    *x = (double)whole;
    return good;
}

static bool parse_bytes(double *x, const char *word)
{
    int64_t whole = 0;
    const bool good = app_parse_bytes(&whole, word);
    *x = (double)whole;
    return good;
}

const struct eval_axis eval_axis_lengths = {.option = "lengths",
                                            .many = "lengths",
                                            .parse = parse_whole,
                                            .min = 64,
                                            .max = 1 << 24,
                                            .neither = "a whole number nor s, c32 or c128",
                                            .range = "64 to 16777216"};
const struct eval_axis eval_axis_depths = {.option = "depths",
                                           .many = "depths",
                                           .parse = app_parse_real,
                                           .max = 100,
                                           .neither = "0 to 100 nor lin5, lin10 or sigmoid"};

#define SIZES(id, is, parser, least, most, allowed)                                                          \
    {                                                                                                        \
        .option = id, .many = "sizes", .parse = parser, .min = least, .max = most,                           \
        .neither = "a number nor the name of a list of sizes", .range = allowed, .kind = is, .is_size = true \
    }
static const struct eval_axis sizes_axes[] = {
    SIZES("ratios", WNW_SIZE_RATIO, app_parse_real, 0, 0.9999999999999999, "at least 0 and less than 1"),
    SIZES("budgets", WNW_SIZE_BUDGET, parse_whole, 1, 2147483647, "1 to 2147483647"),
    SIZES("kv-bytes", WNW_SIZE_BYTES, parse_bytes, 1, 4611686018427387904.0, "1 byte to 4294967296G"),
};

/* Numbers while they are read. */
struct numbers {
    const struct eval_axis *axis;
    struct eval_numbers *out;
};

static int add_number(struct numbers *x, double value)
{
    if (x->out->n == EVAL_MAX_NUMBERS)
        return app_fail(APP_BAD_INPUT, "--%s: at most %d %s", x->axis->option, EVAL_MAX_NUMBERS,
                        x->axis->many);
    x->out->items[x->out->n++] = value;
    return APP_OK;
}

/* The numbers of a list that has a name, as text; NULL if there is none. */
static const char *find_grid(const char *option, const char *name)
{
    const size_t n_option = strlen(option), n_name = strlen(name);
    for (size_t i = 0; i < eval_grids.n; i++) {
        const char *line = eval_grids.at[i];
        if (strncmp(line, option, n_option) == 0 && line[n_option] == ' ' &&
            strncmp(line + n_option + 1, name, n_name) == 0 && line[n_option + 1 + n_name] == ' ')
            return line + n_option + 1 + n_name;
    }
    return NULL;
}

static int add_number_word(void *user, const char *word)
{
    struct numbers *x = user;
    const struct eval_axis *axis = x->axis;
    const char *grid = find_grid(axis->option, word);
    double value;
    if (grid) {
        for (char *end; *grid; grid = end)
            WNW_TRY(add_number(x, wnw__to_double(grid, &end)));
        return APP_OK;
    }
    if (axis->is_size && strcmp(word, "own") == 0)
        return add_number(x, NAN);
    const bool good = axis->parse(&value, word), within = good && value >= axis->min && value <= axis->max;
    if (!good || (!within && !axis->range))
        return app_fail(APP_BAD_INPUT, "--%s: '%s' is neither %s", axis->option, word, axis->neither);
    return within ? add_number(x, value)
                  : app_fail(APP_BAD_INPUT, "--%s: %s is out of range; it must be %s", axis->option, word,
                             axis->range);
}

int eval_add_numbers(struct eval_numbers *out, const struct eval_axis *axis, const char *list)
{
    struct numbers x = {axis, out};
    return eval_each_word(axis->option, list, ',', add_number_word, &x);
}

/* ---- Sizes ---- */

static wnw_size size_of(const struct eval_axis *axis, double x)
{
    const wnw_size_kind kind = isnan(x) ? WNW_SIZE_NONE : axis->kind;
    return (wnw_size){.kind = kind,
                      .ratio = kind == WNW_SIZE_RATIO ? x : 0,
                      .budget = kind == WNW_SIZE_BUDGET ? (int64_t)x : 0,
                      .bytes = kind == WNW_SIZE_BYTES ? (uint64_t)x : 0};
}

static bool has_size(const wnw_size *sizes, int32_t n, const wnw_size *size)
{
    char text[40], other[40];
    eval_size_text(text, sizeof text, size);
    for (int32_t i = 0; i < n; i++) {
        eval_size_text(other, sizeof other, &sizes[i]);
        if (strcmp(text, other) == 0)
            return true;
    }
    return false;
}

int eval_list_sizes(wnw_size *sizes, int32_t *n, const struct eval_args *args, const struct eval_part *part)
{
    const bool own = !args->ratios && !args->budgets && !args->kv_bytes;
    const char *const given[] = {own ? part->ratios : args->ratios, own ? part->budgets : args->budgets,
                                 args->kv_bytes};
    struct eval_numbers x = {.n = 0};
    int which = -1;
    *n = 0;
    for (int i = 0; i < 3; i++) {
        if (given[i] && which >= 0)
            return app_fail(APP_BAD_INPUT,
                            "--ratios, --budgets and --kv-bytes exclude each other; give one of them");
        which = given[i] ? i : which;
    }
    const struct eval_axis *axis = &sizes_axes[which < 0 ? 0 : which];
    WNW_TRY(eval_add_numbers(&x, axis, which < 0 ? "0.5" : given[which]));
    for (int32_t i = 0; i < x.n; i++) {
        const wnw_size size = size_of(axis, x.items[i]);
        if (!has_size(sizes, *n, &size))
            sizes[(*n)++] = size;
    }
    return APP_OK;
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
