/* SPDX-License-Identifier: MIT */
/* Several questions about one context, after SCBench. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "base/vectors.h"
#include "eval/base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { N_TURNS = 5, MAX_TRIES = 1000 };

/* Keys and their values. */
struct pairs {
    char key[N_TURNS][EVAL_MAX_VALUE], value[N_TURNS][EVAL_MAX_VALUE];
};

/* Asks for the value of each key, in random order. */
static void ask_pairs(struct eval_sample *s, const struct pairs *p, const struct eval_list *form,
                      struct eval_random *r)
{
    size_t order[N_TURNS] = {0, 1, 2, 3, 4};
    eval_random_shuffle(r, order, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        const char *key = p->key[order[i]];
        eval_add_ref(
            s, eval_ask(s, form, (const char *const[]){"key", key, "query", key, "type", "number", NULL}),
            p->value[order[i]]);
    }
}

/* ---- Pairs of UUIDs ---- */

int eval_make_scb_kv(struct eval_sample *s, struct eval_draft *d)
{
    struct pairs asked;
    int64_t places[N_TURNS];
    const int64_t units = d->units;
    struct eval_random *r = &d->r;
    for (int i = 0; i < N_TURNS; i++) { /* one in each fifth */
        const int64_t from = units * i / N_TURNS, to = units * (i + 1) / N_TURNS;
        places[i] = from + (int64_t)eval_random_below(r, (uint64_t)(to - from));
    }
    eval_put(s, &s->context, "%s", eval_form_scb_kv_syn.at[EVAL_CONTEXT]);
    for (int64_t i = 0, next = 0; i < units; i++) {
        char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE], pair[3 * EVAL_MAX_VALUE];
        eval_draw_value(key, r, EVAL_UUID);
        eval_draw_value(value, r, EVAL_UUID);
        const int len = snprintf(pair, sizeof pair, "\"%s\": \"%s\"", key, value);
        const bool wanted = next < N_TURNS && i == places[next];
        eval_put(s, &s->context, "%s", i > 0 ? ", " : "");
        eval_put_piece(s, pair, (size_t)len, wanted);
        if (wanted) {
            strcpy(asked.key[next], key);
            strcpy(asked.value[next++], value);
        }
    }
    eval_put(s, &s->context, "}\n\n");
    ask_pairs(s, &asked, &eval_form_scb_kv_syn, r);
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

int eval_make_scb_ends(struct eval_sample *s, struct eval_draft *d)
{
    const size_t n = (size_t)d->units;
    struct eval_random *r = &d->r;
    size_t places[N_TURNS];
    char(*line)[STRING + 1] = malloc(n * sizeof *line);
    s->no_memory = s->no_memory || !line;
    if (!line || !eval_draw_ascending(s, places, r, n, N_TURNS)) {
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
    eval_put(s, &s->context, "%s", eval_form_scb_prefix_suffix_syn.at[EVAL_CONTEXT]);
    for (size_t i = 0, next = 0; i < n; i++) {
        const bool wanted = next < N_TURNS && i == places[next];
        eval_put_piece(s, line[i], STRING, wanted);
        eval_put(s, &s->context, "\n");
        next += wanted;
    }
    eval_put(s, &s->context, "\n");
    eval_random_shuffle(r, places, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        const char *want = line[places[i]];
        char start[END + 1];
        snprintf(start, sizeof start, "%.*s", END, want);
        eval_add_ref(s,
                     eval_ask(s, &eval_form_scb_prefix_suffix_syn,
                              (const char *const[]){"start", start, "end", want + STRING - END, NULL}),
                     want);
    }
    free(line);
    return APP_OK;
}

/* ---- Needles in text ---- */

/* Draws keys and numbers that the first n words of the text do not have. */
static void draw_pairs(struct pairs *p, const struct eval_haystack *hay, size_t n, struct eval_random *r)
{
    for (size_t i = 0; i < N_TURNS; i++)
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            eval_draw_value(p->key[i], r, EVAL_WORDS);
            eval_draw_value(p->value[i], r, EVAL_NUMBER);
            if (!eval_is_repeated(p->key, sizeof *p->key, i) && !eval_haystack_says(hay, n, p->key[i]) &&
                !eval_is_repeated(p->value, sizeof *p->value, i) && !eval_haystack_says(hay, n, p->value[i]))
                break;
        }
}

int eval_make_scb_niah(struct eval_sample *s, struct eval_draft *d)
{
    struct pairs p;
    struct eval_haystack *hay = &d->w->haystack;
    char *needle[N_TURNS] = {NULL};
    size_t places[N_TURNS];
    WNW_TRY(eval_haystack_reserve(hay, (size_t)d->units));
    draw_pairs(&p, hay, (size_t)d->units, &d->r);
    for (int i = 0; i < N_TURNS; i++)
        needle[i] = eval_needle_text(s, EVAL_NUMBER, p.key[i], p.value[i]);
    /* One goes after the sentence that reaches the middle of each fifth. */
    const size_t len = eval_haystack_length(hay, (size_t)d->units);
    for (size_t end = 0, i = 1, next = 0; end < len; i++) {
        end += eval_sentence_length(hay->now.text.s + end, len - end) + 1;
        while (next < N_TURNS && (end * 2 * N_TURNS >= len * (2 * next + 1) || end >= len))
            places[next++] = i;
    }
    if (!s->no_memory)
        eval_put_in_text(s, hay->now.text.s, len, &(struct eval_lines){.at = needle, .n = N_TURNS}, places);
    eval_put(s, &s->context, "\n\n");
    ask_pairs(s, &p, &eval_form_niah_one, &d->r);
    for (int i = 0; i < N_TURNS; i++)
        free(needle[i]);
    return APP_OK;
}

/* ---- Ranks of numbers ---- */

enum { N_STATS = 6, MAX_NUMBER = 1000 };

static const char *const stats[N_STATS] = {"largest",         "smallest",      "second largest",
                                           "second smallest", "third largest", "median"};

enum { N_TOP = 4, N_BOTTOM = 3, BAND = 50 };

/* Draws three different numbers below BAND, four different ones among the last BAND, and all others in between.
 * So every rank that is asked for, and its neighbour, belongs to exactly one number. */
static bool draw_numbers(struct eval_sample *s, int *numbers, size_t n, struct eval_random *r)
{
    size_t top[N_TOP], bottom[N_BOTTOM], *order = eval_iota(n);
    if (!order || !eval_draw_ascending(s, top, r, BAND, N_TOP) ||
        !eval_draw_ascending(s, bottom, r, BAND, N_BOTTOM)) {
        free(order);
        return false;
    }
    eval_random_shuffle(r, order, n);
    for (size_t i = 0; i < n; i++) {
        int *number = &numbers[order[i]];
        if (i < N_TOP)
            *number = MAX_NUMBER - BAND + (int)top[i];
        else if (i < N_TOP + N_BOTTOM)
            *number = (int)bottom[i - N_TOP];
        else
            *number = BAND + (int)eval_random_below(r, MAX_NUMBER - 2 * BAND);
    }
    free(order);
    return true;
}

/* Statistic number i of sorted[n]; n is odd. */
static int stat_of(const int *sorted, size_t n, int i)
{
    const size_t rank[N_STATS] = {n - 1, 0, n - 2, 1, n - 3, n / 2};
    return sorted[rank[i]];
}

static void put_numbers(struct eval_sample *s, const int *numbers, const int *sorted, size_t n)
{
    /* The first prompt announces the first question. */
    eval_put(s, &s->context, "%s[", eval_form_scb_mf_syn.at[EVAL_CONTEXT]);
    for (size_t i = 0; i < n; i++)
        eval_put(s, &s->context, "%s%d", i > 0 ? ", " : "", numbers[i]);
    eval_put(s, &s->context, "]\n\n");
    for (int i = 0; i < N_STATS; i++) {
        char answer[16];
        snprintf(answer, sizeof answer, "%d", stat_of(sorted, n, i));
        eval_add_ref(s, eval_ask(s, &eval_form_scb_mf_syn, (const char *const[]){"stat", stats[i], NULL}),
                     answer);
    }
}

/* The unit is a pair of numbers. One number is added, so that their count is odd and the median is one of
 * them. */
int eval_make_scb_mf(struct eval_sample *s, struct eval_draft *d)
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
