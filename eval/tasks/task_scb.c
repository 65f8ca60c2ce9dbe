/* SPDX-License-Identifier: MIT */
/* Several questions about one context, after SCBench. */
#include "eval/tasks/task.h"

#include "app/console.h"
#include "base/vectors.h"

#include <stdlib.h>
#include <string.h>

enum { N_TURNS = 5, MAX_TRIES = 1000 };

/* ---- Pairs of UUIDs ---- */

static int make_kv(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                   int64_t units, struct eval_random *r)
{
    char asked[N_TURNS][2][EVAL_MAX_VALUE];
    int64_t at[N_TURNS];
    (void)w;
    (void)task;
    *fits = units >= N_TURNS;
    if (!*fits)
        return APP_OK;
    for (int i = 0; i < N_TURNS; i++) { /* one in each fifth */
        const int64_t from = units * i / N_TURNS, to = units * (i + 1) / N_TURNS;
        at[i] = from + (int64_t)eval_random_below(r, (uint64_t)(to - from));
    }
    eval_put(
        s, &s->context,
        "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n{");
    for (int64_t i = 0, next = 0; i < units; i++) {
        char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE], pair[3 * EVAL_MAX_VALUE];
        eval_draw_value(key, r, EVAL_UUID);
        eval_draw_value(value, r, EVAL_UUID);
        const int len = snprintf(pair, sizeof pair, "\"%s\": \"%s\"", key, value);
        eval_put(s, &s->context, "%s", i > 0 ? ", " : "");
        if (next < N_TURNS && i == at[next]) {
            eval_put_evidence(s, pair, (size_t)len);
            strcpy(asked[next][0], key);
            strcpy(asked[next++][1], value);
        } else {
            eval_put_n(s, &s->context, pair, (size_t)len);
        }
    }
    eval_put(s, &s->context, "}\n\n");
    size_t order[N_TURNS] = {0, 1, 2, 3, 4};
    eval_random_shuffle(r, order, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, turn ? &turn->question : NULL, "Key: \"%s\"\n", asked[order[i]][0]);
        eval_put(s, turn ? &turn->prefix : NULL, "The value associated with the specified key is: ");
        eval_add_ref(s, turn, asked[order[i]][1]);
    }
    return APP_OK;
}

/* ---- Strings by their ends ---- */

enum { STRING = 24, END = 6 };

static void draw_string(char out[STRING + 1], struct eval_random *r)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (int i = 0; i < STRING; i++)
        out[i] = letters[eval_random_below(r, sizeof letters - 1)];
    out[STRING] = '\0';
}

static int make_prefix_suffix(struct eval_sample *s, bool *fits, struct eval_world *w,
                              const struct eval_task *task, int64_t units, struct eval_random *r)
{
    const size_t n = (size_t)units;
    size_t at[N_TURNS];
    (void)w;
    (void)task;
    *fits = n >= N_TURNS;
    if (!*fits)
        return APP_OK;
    char(*line)[STRING + 1] = malloc(n * sizeof *line);
    if (!line || !eval_draw_ascending(at, r, n, N_TURNS)) {
        free(line);
        return app_fail(APP_FAILED, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        bool taken; /* another one has the same two ends: the question would have two answers */
        do {
            taken = false;
            draw_string(line[i], r);
            for (size_t k = 0; k < i; k++)
                taken = taken || (memcmp(line[k], line[i], END) == 0 &&
                                  memcmp(line[k] + STRING - END, line[i] + STRING - END, END) == 0);
        } while (taken);
    }
    eval_put(s, &s->context, "Below is a list of strings, one per line.\n\n");
    for (size_t i = 0, next = 0; i < n; i++) {
        if (next < N_TURNS && i == at[next]) {
            eval_put_evidence(s, line[i], STRING);
            next++;
        } else {
            eval_put_n(s, &s->context, line[i], STRING);
        }
        eval_put(s, &s->context, "\n");
    }
    eval_put(s, &s->context, "\n");
    eval_random_shuffle(r, at, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        const char *want = line[at[i]];
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, turn ? &turn->question : NULL,
                 "Which string of the list starts with \"%.*s\" and ends with \"%s\"? Answer with the whole "
                 "string and nothing "
                 "else.\n",
                 END, want, want + STRING - END);
        eval_put(s, turn ? &turn->prefix : NULL, "The string is: ");
        eval_add_ref(s, turn, want);
    }
    free(line);
    return APP_OK;
}

/* ---- Chains of variables ---- */

enum { N_CHAINS = 4, N_NAMES = 5, N_LINES = N_CHAINS * N_NAMES };

struct chains {
    char name[N_LINES][8], value[N_CHAINS][8], line[N_LINES][48]; /* name, line: by chain */
    char *lines[N_LINES];                                         /* in the order of the context */
};

/* Draws names and values without repetition. */
static void draw_chains(struct chains *c, struct eval_random *r)
{
    for (int i = 0; i < N_LINES;) {
        bool taken = false;
        for (int k = 0; k < 5; k++)
            c->name[i][k] = (char)('A' + eval_random_below(r, 26));
        c->name[i][5] = '\0';
        for (int k = 0; k < i; k++)
            taken = taken || strcmp(c->name[k], c->name[i]) == 0;
        i += !taken;
    }
    for (int i = 0; i < N_CHAINS;) {
        bool taken = false;
        snprintf(c->value[i], sizeof c->value[i], "%d", (int)(10000 + eval_random_below(r, 89999)));
        for (int k = 0; k < i; k++)
            taken = taken || strcmp(c->value[k], c->value[i]) == 0;
        i += !taken;
    }
    for (int i = 0; i < N_LINES; i++) {
        if (i % N_NAMES == 0)
            snprintf(c->line[i], sizeof c->line[i], "VAR %s = %s", c->name[i], c->value[i / N_NAMES]);
        else
            snprintf(c->line[i], sizeof c->line[i], "VAR %s = VAR %s ", c->name[i], c->name[i - 1]);
    }
}

/* Puts the lines of all chains in random order; the lines of one chain keep theirs. */
static void interleave(struct chains *c, struct eval_random *r)
{
    size_t chain[N_LINES];
    int next[N_CHAINS] = {0};
    for (int i = 0; i < N_LINES; i++)
        chain[i] = (size_t)(i / N_NAMES);
    eval_random_shuffle(r, chain, N_LINES);
    for (int i = 0; i < N_LINES; i++)
        c->lines[i] = c->line[chain[i] * N_NAMES + (size_t)next[chain[i]]++];
}

static int make_vt(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                   int64_t units, struct eval_random *r)
{
    struct chains c;
    size_t at[N_LINES];
    (void)w;
    (void)task;
    *fits = units >= N_LINES;
    if (!*fits)
        return APP_OK;
    draw_chains(&c, r);
    interleave(&c, r);
    if (!eval_draw_ascending(at, r, (size_t)units, N_LINES))
        return app_fail(APP_FAILED, "out of memory");
    eval_put(s, &s->context,
             "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n");
    eval_put_in_noise(s, units, c.lines, at, N_LINES, NULL);
    eval_put(s, &s->context, "\n\n");
    for (int i = 0; i < N_CHAINS; i++) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, turn ? &turn->question : NULL,
                 "Question: Find all variables that are assigned the value %s in the text above.",
                 c.value[i]);
        eval_put(s, turn ? &turn->prefix : NULL,
                 " Answer: According to the chain(s) of variable assignment in the text above, %d variables "
                 "are assigned the "
                 "value %s, they are: ",
                 N_NAMES, c.value[i]);
        for (int k = 0; k < N_NAMES; k++)
            eval_add_ref(s, turn, c.name[i * N_NAMES + k]);
    }
    return APP_OK;
}

/* ---- Needles in text ---- */

static int make_niah(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                     int64_t units, struct eval_random *r)
{
    char key[N_TURNS][EVAL_MAX_VALUE], value[N_TURNS][EVAL_MAX_VALUE];
    (void)task;
    *fits = units >= 2 * N_TURNS;
    int rc = *fits ? eval_haystack_reserve(&w->haystack, (size_t)units) : APP_OK;
    if (rc != APP_OK || !*fits)
        return rc;
    for (int i = 0; i < N_TURNS; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            bool taken = false;
            eval_draw_value(key[i], r, EVAL_WORDS);
            eval_draw_value(value[i], r, EVAL_NUMBER);
            for (int k = 0; k < i; k++)
                taken = taken || strcmp(key[k], key[i]) == 0 || strcmp(value[k], value[i]) == 0;
            if (!taken && !strstr(w->haystack.text.s, key[i]) && !strstr(w->haystack.text.s, value[i]))
                break;
        }
    const char *text = w->haystack.text.s;
    const size_t len = eval_haystack_length(&w->haystack, (size_t)units);
    int next = 0;
    for (size_t at = 0; at < len;) {
        const size_t n = eval_sentence_length(text + at, len - at);
        eval_put_n(s, &s->context, text + at, n);
        at += n + 1;
        /* One goes after the sentence that reaches the middle of each fifth. */
        while (next < N_TURNS && (at * 2 * N_TURNS >= len * (size_t)(2 * next + 1) || at >= len)) {
            char needle[160];
            const int n_needle =
                snprintf(needle, sizeof needle, "One of the special magic numbers for %s is: %s.", key[next],
                         value[next]);
            eval_put(s, &s->context, " ");
            eval_put_evidence(s, needle, (size_t)n_needle);
            next++;
        }
        eval_put(s, &s->context, "%s", at < len ? " " : "");
    }
    eval_put(s, &s->context, "\n\n");
    size_t order[N_TURNS] = {0, 1, 2, 3, 4};
    eval_random_shuffle(r, order, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, turn ? &turn->question : NULL,
                 "What is the special magic number for %s mentioned in the provided text?", key[order[i]]);
        eval_put(s, turn ? &turn->prefix : NULL,
                 " The special magic number for %s mentioned in the provided text is", key[order[i]]);
        eval_add_ref(s, turn, value[order[i]]);
    }
    return APP_OK;
}

/* ---- Ranks of numbers ---- */

enum { N_STATS = 6, MAX_NUMBER = 1000 };

static const char *const stats[N_STATS] = {"largest",         "smallest",      "second largest",
                                           "second smallest", "third largest", "median"};

enum { N_TOP = 4, N_BOTTOM = 3, BAND = 50 };

/* Draws three different numbers below BAND, four different ones among the last BAND, and all others between,
 * so that every rank that is asked for, and its neighbour, belongs to exactly one number. */
static bool draw_numbers(int *numbers, size_t n, struct eval_random *r)
{
    size_t top[N_TOP], bottom[N_BOTTOM], *order = eval_iota(n);
    if (!order || !eval_draw_ascending(top, r, BAND, N_TOP) ||
        !eval_draw_ascending(bottom, r, BAND, N_BOTTOM)) {
        free(order);
        return false;
    }
    eval_random_shuffle(r, order, n);
    for (size_t i = 0; i < n; i++)
        numbers[order[i]] = i < N_TOP              ? MAX_NUMBER - BAND + (int)top[i]
                            : i < N_TOP + N_BOTTOM ? (int)bottom[i - N_TOP]
                                                   : BAND + (int)eval_random_below(r, MAX_NUMBER - 2 * BAND);
    free(order);
    return true;
}

/* Statistic number i of sorted[n]; n is odd. */
static int stat_of(const int *sorted, size_t n, int i)
{
    const size_t at[N_STATS] = {n - 1, 0, n - 2, 1, n - 3, n / 2};
    return sorted[at[i]];
}

static void put_numbers(struct eval_sample *s, const int *numbers, const int *sorted, size_t n)
{
    /* The first prompt announces the first question. */
    eval_put(s, &s->context, "What is the %s number?\n\n[", stats[0]);
    for (size_t i = 0; i < n; i++)
        eval_put(s, &s->context, "%s%d", i > 0 ? ", " : "", numbers[i]);
    eval_put(s, &s->context, "]\n\n");
    for (int i = 0; i < N_STATS; i++) {
        char answer[16];
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, turn ? &turn->question : NULL, "You should answer with only one number, no other words.");
        eval_put(s, turn ? &turn->prefix : NULL, " The %s number of the list is: ", stats[i]);
        snprintf(answer, sizeof answer, "%d", stat_of(sorted, n, i));
        eval_add_ref(s, turn, answer);
    }
}

/* The unit is a pair of numbers. One number is added, so that their count is odd and the median is one of
 * them. */
static int make_mf(struct eval_sample *s, bool *fits, struct eval_world *w, const struct eval_task *task,
                   int64_t units, struct eval_random *r)
{
    const size_t n = 2 * (size_t)units + 1;
    (void)w;
    (void)task;
    *fits = n > N_TOP + N_BOTTOM;
    if (!*fits)
        return APP_OK;
    int *numbers = malloc(2 * n * sizeof *numbers);
    if (!numbers || !draw_numbers(numbers, n, r)) {
        free(numbers);
        return app_fail(APP_FAILED, "out of memory");
    }
    memcpy(numbers + n, numbers, n * sizeof *numbers);
    qsort(numbers + n, n, sizeof *numbers, wnw__ascending_i32);
    put_numbers(s, numbers, numbers + n, n);
    free(numbers);
    return APP_OK;
}

const struct eval_task eval_tasks_scb[] = {
    {"scb_kv_syn", "scb", "values of five keys of a JSON object", "pairs", "kv", 150, 640, EVAL_STANDS_IN, 10,
     make_kv, NULL, NULL},
    {"scb_prefix_suffix_syn", "scb", "five strings of a list by their ends", "strings", "kv", 150, 512,
     EVAL_STANDS_IN, 10, make_prefix_suffix, NULL, NULL},
    {"scb_vt_syn", "scb", "the variables of four interleaved chains", "blocks of noise", "string_match_all",
     30, 1024, EVAL_STANDS_IN, 10, make_vt, NULL, NULL},
    {"scb_niah_syn", "scb", "five numbers in text", "words", "string_match_all", 64, 512,
     EVAL_HIDES_IN_TEXT | EVAL_STANDS_IN, 500, make_niah, NULL, NULL},
    {"scb_mf_syn", "scb", "largest, smallest, ... and median of a list", "pairs of numbers", "number", 5, 256,
     EVAL_STANDS_IN, 25, make_mf, NULL, NULL},
    {.name = NULL},
};
