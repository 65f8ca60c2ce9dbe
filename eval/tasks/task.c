/* SPDX-License-Identifier: MIT */
/* The list of tasks; how many units make a length; samples. */
#include "eval/tasks/task.h"

#include "app/console.h"
#include "base/vectors.h"
#include "eval/base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct eval_task *const families[] = {eval_tasks_niah, eval_tasks_vt,   eval_tasks_lists,
                                                   eval_tasks_qa,   eval_tasks_grid, eval_tasks_passkey,
                                                   eval_tasks_scb};

const struct eval_task *eval_task_get(int32_t i)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const struct eval_task *t = families[f]; t->name; t++)
            if (i-- == 0)
                return t;
    return NULL;
}

const struct eval_task *eval_task_find(const char *name)
{
    const struct eval_task *t;
    for (int32_t i = 0; (t = eval_task_get(i)); i++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

/* ---- Lengths ---- */

/* Counts the tokens of all of a sample's questions with their answers, whichever may stay in the cache: the model's or the
 * references. n_first: tokens of the first prompt. */
static int count_conversation(int32_t *n, const struct eval_source *w, const struct eval_sample *s,
                              int32_t n_first)
{
    int32_t *end = calloc((size_t)s->n_turns, sizeof *end);
    *n = 0;
    if (!end)
        return app_fail(APP_FAILED, "out of memory for a sample of %s", s->task);
    end[0] = n_first;
    const int rc = eval_timeline_ends(end, w->tokenizer, w->chat, s,
                                      EVAL_HISTORY_REFERENCES | EVAL_HISTORY_ANSWERS, false);
    for (int32_t turn = 0; turn < s->n_turns; turn++)
        *n = end[turn] + s->max_new > *n ? end[turn] + s->max_new : *n;
    free(end);
    return rc;
}

/* A sample's length. */
struct length {
    int32_t n;     /* tokens of the longest prompt, including its answer; 0 = not known */
    int32_t n_all; /* of the conversation; 0 = not counted */
    bool fits;     /* n is not more than was asked for, and the model's context holds the conversation */
};

static int count_sample(struct length *len, const struct eval_source *w, const struct eval_sample *s)
{
    struct eval_prompt *p = calloc((size_t)s->n_turns, sizeof *p);
    int rc = p ? eval_prompts_first(p, w->tokenizer, w->chat, s)
               : app_fail(APP_FAILED, "out of memory for a sample of %s", s->task);
    const int32_t n_first = rc == APP_OK ? p[0].n : 0;
    *len = (struct length){0};
    for (int32_t turn = 0; p && turn < s->n_turns; turn++) {
        len->n = rc == APP_OK && p[turn].n + s->max_new > len->n ? p[turn].n + s->max_new : len->n;
        eval_prompt_clear(&p[turn]);
    }
    free(p);
    /* A template that takes no earlier turns has no conversations; lengths beyond the context are left out anyway. */
    if (rc == APP_OK && s->n_turns > 1 && w->chat->takes_turns && s->n_target <= w->n_ctx)
        rc = count_conversation(&len->n_all, w, s, n_first);
    len->fits = len->n <= s->n_target && len->n_all <= w->n_ctx;
    return rc;
}

/* Makes sample `index` of a length from a draft without its random numbers, and counts it unless there are too few units. */
static int make_sample(struct eval_sample *s, struct length *len, struct eval_draft *d, int32_t n_target,
                       int32_t index)
{
    const struct eval_task *task = d->task;
    const struct eval_source *w = d->w;
    char key[128];
    snprintf(key, sizeof key, "%s|%d|%d|%llu", task->name, n_target, index, (unsigned long long)w->seed);
    d->r = eval_random_key(key);
    *s = (struct eval_sample){.task = task->name,
                              .metric = task->metric,
                              .n_target = n_target,
                              .index = index,
                              .seed = w->seed,
                              .max_new = task->max_new,
                              .too_few = d->units < task->least_units};
    *len = (struct length){0};
    eval_set_meta(s, "units", json_integer(d->units));
    const int rc = s->too_few ? APP_OK : task->make(s, d);
    if (rc != APP_OK || s->too_few)
        return rc;
    if (s->no_memory)
        return app_fail(APP_FAILED, "out of memory for a sample of %s", task->name);
    return count_sample(len, w, s);
}

/* Counts the tokens of sample 0 with `units` units; 0 if these are too few units. */
static int count_units(struct length *len, struct eval_source *w, const struct eval_task *task, int64_t units,
                       int32_t n_target)
{
    struct eval_sample s;
    struct eval_draft d = {.w = w, .task = task, .units = units};
    const int rc = make_sample(&s, len, &d, n_target, 0);
    eval_sample_clear(&s);
    return rc;
}

static int too_short(const struct eval_task *task, int32_t n_target, int32_t least)
{
    return app_fail(APP_BAD_INPUT, "%s does not fit %d tokens; give it a length of %d or more", task->name,
                    n_target, least > task->least ? least : task->least);
}

int eval_task_fit(struct eval_fit *fit, struct eval_source *w, const struct eval_task *task, int32_t n_target)
{
    enum { MOST = 1 << 20 };
    struct length len = {0};
    int64_t lo = task->units_of ? task->units_of(n_target) : 1, hi = 0;
    int rc = APP_OK;
    *fit = (struct eval_fit){.units = lo};
    if (task->units_of)
        return lo > 0 ? APP_OK : too_short(task, n_target, task->least);
    /* The fewest units with which a sample can be made. */
    for (; rc == APP_OK && len.n == 0 && lo < MOST; lo += len.n == 0)
        rc = count_units(&len, w, task, lo, n_target);
    if (rc == APP_OK && !len.fits && len.n_all > w->n_ctx && len.n <= n_target)
        return app_fail(APP_BAD_INPUT, "%s: its questions take %d tokens, and the model's context holds %d",
                        task->name, (int)len.n_all, (int)w->n_ctx);
    if (rc == APP_OK && !len.fits)
        return too_short(task, n_target, len.n);
    /* Units are doubled until the sample is too long, then the interval is halved. Making a sample is linear
     * in its units. */
    for (int64_t at = lo + task->units_at_once; rc == APP_OK && (hi == 0 || hi - lo > 1);
         at = hi == 0 ? 2 * at : lo + (hi - lo) / 2) {
        rc = count_units(&len, w, task, at, n_target);
        if (len.fits)
            lo = at;
        else
            hi = at;
    }
    fit->units = lo;
    return rc;
}

/* Stores in meta where the evidence begins, as a share of the context's tokens. */
static int note_depth(struct eval_sample *s, const struct eval_source *w)
{
    int32_t before, all;
    if (s->n_spans == 0)
        return APP_OK;
    int rc = eval_count_tokens(&before, w->tokenizer, s->context.s, s->spans[0].from);
    if (rc == APP_OK)
        rc = eval_count_tokens(&all, w->tokenizer, s->context.s, s->context.len);
    if (rc == APP_OK)
        eval_set_meta(s, "depth", json_real(all > 0 ? (double)before / all : 0.0));
    return rc;
}

/* Stores in meta which texts stand in for the benchmark's own, so that every result shows it. */
static void note_sources(struct eval_sample *s, const struct eval_source *w, const struct eval_task *task)
{
    const bool hides = task->flags & EVAL_HIDES_IN_TEXT;
    if (hides)
        eval_set_meta(s, "haystack", json_string(w->haystack.name));
    if (strcmp(task->group, "ruler") == 0)
        eval_set_meta(s, "style",
                      json_string(hides && strncmp(w->haystack.name, "file:", 5) != 0
                                      ? "RULER-style (synthetic haystack)"
                                      : "RULER-style"));
}

int eval_task_sample(struct eval_sample *s, struct eval_source *w, const struct eval_task *task,
                     const struct eval_fit *fit, int32_t n_target, int32_t index)
{
    struct eval_draft d = {.w = w, .task = task, .units = fit->units};
    for (;;) {
        struct length len;
        int rc = make_sample(s, &len, &d, n_target, index);
        if (rc != APP_OK)
            return rc;
        if (s->too_few)
            return too_short(task, n_target, 0);
        if (s->unmade)
            return APP_OK;
        if (len.fits) {
            eval_set_meta(s, "tokens", json_integer(len.n));
            note_sources(s, w, task);
            rc = note_depth(s, w);
            return rc == APP_OK && s->no_memory ? eval_no_memory("a sample") : rc;
        }
        eval_sample_clear(s);
        d.units -= d.units / 64 > 1 ? d.units / 64 : 1;
    }
}

/* ---- What tasks share ---- */

int eval_count_overhead(int32_t *n, const struct eval_source *w)
{
    struct eval_turn turn = {0};
    const struct eval_sample nothing = {.turns = &turn, .n_turns = 1};
    struct eval_prompt p = {0};
    const int rc = eval_prompts_first(&p, w->tokenizer, w->chat, &nothing);
    *n = p.n;
    eval_prompt_clear(&p);
    return rc;
}

void eval_draw_value(char out[EVAL_MAX_VALUE], struct eval_random *r, enum eval_value kind)
{
    if (kind == EVAL_NUMBER) {
        snprintf(out, EVAL_MAX_VALUE, "%d", (int)(1000000 + eval_random_below(r, 9000000)));
    } else if (kind == EVAL_WORDS) {
        const char *adjective = eval_draw(r, &eval_adjectives);
        snprintf(out, EVAL_MAX_VALUE, "%s-%s", adjective, eval_draw(r, &eval_nouns));
    } else { /* version 4, variant 10 */
        const uint64_t a = eval_random_next(r), b = eval_random_next(r);
        snprintf(out, EVAL_MAX_VALUE, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
                 (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                 (unsigned long long)(b & UINT64_C(0xffffffffffff)));
    }
}

size_t *eval_iota(size_t n)
{
    size_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = i;
    return ids;
}

bool eval_draw_ascending(struct eval_sample *s, size_t *out, struct eval_random *r, size_t n, size_t k)
{
    size_t *ids = eval_iota(n);
    if (!ids) {
        s->no_memory = true;
        return false;
    }
    eval_random_sample(r, ids, n, k);
    memcpy(out, ids, k * sizeof *out);
    free(ids);
    if (k > 1)
        qsort(out, k, sizeof *out, wnw__ascending_size);
    return true;
}

bool eval_is_repeated(const void *list, size_t size, size_t i)
{
    const char *texts = list;
    for (size_t k = 0; k < i; k++)
        if (strcmp(texts + k * size, texts + i * size) == 0)
            return true;
    return false;
}

void eval_put_list(struct eval_sample *s, struct app_text *to, const char *const *items, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        eval_put(s, to, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : ", and ", items[i]);
}

double eval_grid_depth(const struct eval_source *w, int32_t index)
{
    return w->depths[index / w->n_trials % w->n_depths];
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

int32_t eval_grid_index(int32_t n_depths, int32_t n_trials, int32_t k)
{
    /* The golden section of the depths, rounded to a step that comes to all of them. */
    int32_t step = (int32_t)(0.618 * n_depths);
    while (step > 1 && common_divisor(n_depths, step) > 1)
        step--;
    step = step > 1 ? step : 1;
    const int32_t depth = (n_depths / 2 + k % n_depths * step) % n_depths;
    return depth * n_trials + k / n_depths % n_trials;
}

void eval_put_in_noise(struct eval_sample *s, int64_t n_blocks, char *const *lines, const size_t *at,
                       size_t n, const bool *evidence)
{
    size_t next = 0;
    for (int64_t i = 0; i <= n_blocks; i++) {
        for (; next < n && (at[next] <= (size_t)i || i == n_blocks); next++) {
            if (i > 0 || next > 0)
                eval_put_n(s, &s->context, "\n", 1);
            eval_put_piece(s, lines[next], strlen(lines[next]), !evidence || evidence[next]);
        }
        if (i < n_blocks)
            eval_put(s, &s->context, "%s%s", i > 0 || next > 0 ? "\n" : "", eval_noise);
    }
}
