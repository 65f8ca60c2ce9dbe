/* SPDX-License-Identifier: MIT */
/* Several questions about one context, after SCBench. */
#include "eval/tasks/task.h"

#include "app/console.h"
#include "base/vectors.h"

#include <stdlib.h>
#include <string.h>

enum { N_TURNS = 5, MAX_TRIES = 1000 };

/* ---- Pairs of UUIDs ---- */

static int make_kv(struct eval_sample *s, struct eval_draft *d)
{
    char asked[N_TURNS][2][EVAL_MAX_VALUE];
    int64_t at[N_TURNS];
    const int64_t units = d->units;
    struct eval_random *r = &d->r;
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
        const bool wanted = next < N_TURNS && i == at[next];
        eval_put(s, &s->context, "%s", i > 0 ? ", " : "");
        eval_put_piece(s, pair, (size_t)len, wanted);
        if (wanted) {
            strcpy(asked[next][0], key);
            strcpy(asked[next++][1], value);
        }
    }
    eval_put(s, &s->context, "}\n\n");
    size_t order[N_TURNS] = {0, 1, 2, 3, 4};
    eval_random_shuffle(r, order, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, &turn->question, "Key: \"%s\"\n", asked[order[i]][0]);
        eval_put(s, &turn->prefix, "The value associated with the specified key is: ");
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

static int make_prefix_suffix(struct eval_sample *s, struct eval_draft *d)
{
    const size_t n = (size_t)d->units;
    struct eval_random *r = &d->r;
    size_t at[N_TURNS];
    char(*line)[STRING + 1] = malloc(n * sizeof *line);
    s->no_memory = s->no_memory || !line;
    if (!line || !eval_draw_ascending(s, at, r, n, N_TURNS)) {
        free(line);
        return APP_OK;
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
        const bool wanted = next < N_TURNS && i == at[next];
        eval_put_piece(s, line[i], STRING, wanted);
        eval_put(s, &s->context, "\n");
        next += wanted;
    }
    eval_put(s, &s->context, "\n");
    eval_random_shuffle(r, at, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        const char *want = line[at[i]];
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, &turn->question,
                 "Which string of the list starts with \"%.*s\" and ends with \"%s\"? Answer with the whole "
                 "string and nothing "
                 "else.\n",
                 END, want, want + STRING - END);
        eval_put(s, &turn->prefix, "The string is: ");
        eval_add_ref(s, turn, want);
    }
    free(line);
    return APP_OK;
}

/* ---- Needles in text ---- */

static int make_niah(struct eval_sample *s, struct eval_draft *d)
{
    char key[N_TURNS][EVAL_MAX_VALUE], value[N_TURNS][EVAL_MAX_VALUE];
    struct eval_haystack *hay = &d->w->haystack;
    const int rc = eval_haystack_reserve(hay, (size_t)d->units);
    if (rc != APP_OK)
        return rc;
    for (size_t i = 0; i < N_TURNS; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            eval_draw_value(key[i], &d->r, EVAL_WORDS);
            eval_draw_value(value[i], &d->r, EVAL_NUMBER);
            if (!eval_is_repeated(key, sizeof *key, i) && !eval_is_repeated(value, sizeof *value, i) &&
                !strstr(hay->text.s, key[i]) && !strstr(hay->text.s, value[i]))
                break;
        }
    const char *text = hay->text.s;
    const size_t len = eval_haystack_length(hay, (size_t)d->units);
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
            eval_put_piece(s, needle, (size_t)n_needle, true);
            next++;
        }
        eval_put(s, &s->context, "%s", at < len ? " " : "");
    }
    eval_put(s, &s->context, "\n\n");
    size_t order[N_TURNS] = {0, 1, 2, 3, 4};
    eval_random_shuffle(&d->r, order, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        struct eval_turn *turn = eval_add_turn(s);
        eval_put(s, &turn->question,
                 "What is the special magic number for %s mentioned in the provided text?", key[order[i]]);
        eval_put(s, &turn->prefix, " The special magic number for %s mentioned in the provided text is",
                 key[order[i]]);
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
static bool draw_numbers(struct eval_sample *s, int *numbers, size_t n, struct eval_random *r)
{
    size_t top[N_TOP], bottom[N_BOTTOM], *order = eval_iota(n);
    if (!order || !eval_draw_ascending(s, top, r, BAND, N_TOP) ||
        !eval_draw_ascending(s, bottom, r, BAND, N_BOTTOM)) {
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
        eval_put(s, &turn->question, "You should answer with only one number, no other words.");
        eval_put(s, &turn->prefix, " The %s number of the list is: ", stats[i]);
        snprintf(answer, sizeof answer, "%d", stat_of(sorted, n, i));
        eval_add_ref(s, turn, answer);
    }
}

/* The unit is a pair of numbers. One number is added, so that their count is odd and the median is one of
 * them. */
static int make_mf(struct eval_sample *s, struct eval_draft *d)
{
    const size_t n = 2 * (size_t)d->units + 1;
    int *numbers = malloc(2 * n * sizeof *numbers);
    if (numbers && draw_numbers(s, numbers, n, &d->r)) {
        memcpy(numbers + n, numbers, n * sizeof *numbers);
        qsort(numbers + n, n, sizeof *numbers, wnw__ascending_i32);
        put_numbers(s, numbers, numbers + n, n);
    } else {
        s->no_memory = true;
    }
    free(numbers);
    return APP_OK;
}

const struct eval_task eval_tasks_scb[] = {
    {"scb_kv_syn", "scb", "values of five keys of a JSON object", "pairs", "kv", 150, 640, EVAL_STANDS_IN, 10,
     N_TURNS, make_kv, NULL, NULL},
    {"scb_prefix_suffix_syn", "scb", "five strings of a list by their ends", "strings", "kv", 150, 512,
     EVAL_STANDS_IN, 10, N_TURNS, make_prefix_suffix, NULL, NULL},
    {"scb_vt_syn", "scb", "the variables of four interleaved chains", "blocks of noise", "string_match_all",
     30, 1024, EVAL_STANDS_IN, 10, 20, eval_make_chains, NULL, NULL},
    {"scb_niah_syn", "scb", "five numbers in text", "words", "string_match_all", 64, 512,
     EVAL_HIDES_IN_TEXT | EVAL_STANDS_IN, 500, 2 * N_TURNS, make_niah, NULL, NULL},
    {"scb_mf_syn", "scb", "largest, smallest, ... and median of a list", "pairs of numbers", "number", 5, 256,
     EVAL_STANDS_IN, 25, (N_TOP + N_BOTTOM + 1) / 2, make_mf, NULL, NULL},
    {.name = NULL},
};
