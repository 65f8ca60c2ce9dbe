/* SPDX-License-Identifier: MIT */
/* The list of tasks; how many units make a length; samples. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NIAH(is_in, keys, values, ...)                           \
    &(const struct eval_niah)                                    \
    {                                                            \
        EVAL_IN_##is_in, EVAL_##keys, EVAL_##values, __VA_ARGS__ \
    }
#define TASK(id, of, domain, kind, by, n, shortest, flag, maker, with, counts, at_once, fewest, says) \
    {.name = id,                                                                                      \
     .group = of,                                                                                     \
     .about = says,                                                                                   \
     .metric = by,                                                                                    \
     .max_new = n,                                                                                    \
     .flags = flag,                                                                                   \
     .make = eval_make_##maker,                                                                       \
     with,                                                                                            \
     .unit = counts,                                                                                  \
     .least = shortest,                                                                               \
     .units_at_once = at_once,                                                                        \
     .least_units = fewest},
#define SET(id, of, domain, kind, by, n, flag, maker, in_file, words, says) \
    {.name = id,                                                            \
     .group = of,                                                           \
     .about = says,                                                         \
     .metric = by,                                                          \
     .max_new = n,                                                          \
     .flags = EVAL_IS_SET | (flag),                                         \
     .make = eval_make_##maker,                                             \
     .file = in_file,                                                       \
     .form = &eval_form_##words},
static const struct eval_task tasks[] = {
#include "eval/base/tasks.def"
};

const struct eval_task eval_task_text = {
    .name = "ppl", .group = "text", .metric = "nll", .flags = EVAL_IS_TEXT};

const struct eval_task *eval_task_get(int32_t i)
{
    return i < (int32_t)(sizeof tasks / sizeof *tasks) ? &tasks[i] : NULL;
}

const struct eval_task *eval_task_find(const char *name)
{
    const struct eval_task *t;
    for (int32_t i = 0; (t = eval_task_get(i)) && strcmp(t->name, name) != 0; i++)
        ;
    return t;
}

bool eval_task_is_of(const struct eval_task *task, const char *group)
{
    return strcmp(task->group, group) == 0;
}

/* ---- Lengths ---- */

int32_t eval_task_max_new(const struct eval_task *task, int32_t n_target)
{
    const int32_t room = (int32_t)((int64_t)n_target * 5 / 8);
    const bool made = !(task->flags & (EVAL_IS_SET | EVAL_IS_TEXT));
    return made && room < task->max_new ? room : task->max_new;
}

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

/* Counts the tokens of the longest prompt, including its answer, and of the first one. */
static int count_prompts(int32_t *n, int32_t *n_first, const struct eval_source *w,
                         const struct eval_sample *s)
{
    struct eval_prompt *p = calloc((size_t)s->n_turns, sizeof *p);
    if (!p)
        return app_fail(APP_FAILED, "out of memory for a sample of %s", s->task);
    const int rc = eval_prompts_first(p, w->tokenizer, w->chat, s);
    *n = 0;
    *n_first = p[0].n;
    for (int32_t turn = 0; turn < s->n_turns; turn++) {
        *n = p[turn].n + s->max_new > *n ? p[turn].n + s->max_new : *n;
        eval_prompt_clear(&p[turn]);
    }
    free(p);
    return rc;
}

static int count_sample(struct length *len, const struct eval_source *w, const struct eval_sample *s)
{
    int32_t n_first = 0;
    *len = (struct length){0};
    WNW_TRY(count_prompts(&len->n, &n_first, w, s));
    /* A template that takes no earlier turns has no conversations; lengths beyond the context are left out anyway. */
    if (s->n_turns > 1 && w->chat->takes_turns && s->n_target <= w->n_ctx)
        WNW_TRY(count_conversation(&len->n_all, w, s, n_first));
    len->fits = len->n <= s->n_target && len->n_all <= w->n_ctx;
    return APP_OK;
}

/* Makes sample `index` of a length from a draft without its random numbers, and counts it unless there are too few units. */
static int make_sample(struct eval_sample *s, struct length *len, struct eval_draft *d, int32_t n_target,
                       int32_t index)
{
    const struct eval_task *task = d->task;
    const struct eval_source *w = d->w;
    char key[EVAL_MAX_SAMPLE_KEY];
    *s = (struct eval_sample){.task = task->name,
                              .metric = task->metric,
                              .n_target = n_target,
                              .index = index,
                              .seed = w->seed,
                              .max_new = eval_task_max_new(task, n_target),
                              .too_few = d->units < task->least_units};
    eval_sample_key(key, s);
    d->r = eval_random_key(key);
    if (task->flags & EVAL_HIDES_IN_TEXT) {
        eval_haystack_begin(&d->w->haystack, s);
        s->text = d->w->haystack.id;
    }
    *len = (struct length){0};
    eval_set_meta(s, "units", json_integer(d->units));
    if (!s->too_few)
        WNW_TRY(task->make(s, d));
    if (s->too_few || s->unmade)
        return APP_OK;
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
    int64_t lo = task->units_at_once > 0 ? 1 : n_target - EVAL_GRID_RESERVE, hi = 0;
    *fit = (struct eval_fit){.units = lo};
    if (task->units_at_once == 0)
        return lo > 0 ? APP_OK : too_short(task, n_target, task->least);
    /* The fewest units with which a sample can be made. */
    for (; len.n == 0 && lo < MOST; lo += len.n == 0)
        WNW_TRY(count_units(&len, w, task, lo, n_target));
    if (!len.fits && len.n_all > w->n_ctx && len.n <= n_target)
        return app_fail(APP_BAD_INPUT, "%s: its questions take %d tokens, and the model's context holds %d",
                        task->name, (int)len.n_all, (int)w->n_ctx);
    if (!len.fits)
        return too_short(task, n_target, len.n);
    /* Units are doubled until the sample is too long, then the interval is halved. Making a sample is linear
     * in its units. */
    for (int64_t units = lo + task->units_at_once; hi == 0 || hi - lo > 1;
         units = hi == 0 ? 2 * units : lo + (hi - lo) / 2) {
        WNW_TRY(count_units(&len, w, task, units, n_target));
        if (len.fits)
            lo = units;
        else
            hi = units;
    }
    fit->units = lo;
    return APP_OK;
}

/* Stores in meta where the evidence begins, as a share of the context's tokens. */
static int note_depth(struct eval_sample *s, const struct eval_source *w)
{
    int32_t before, all;
    if (s->n_spans == 0)
        return APP_OK;
    WNW_TRY(eval_count_tokens(&before, w->tokenizer, s->context.s, s->spans[0].from));
    WNW_TRY(eval_count_tokens(&all, w->tokenizer, s->context.s, s->context.len));
    eval_set_meta(s, "depth", json_real(all > 0 ? (double)before / all : 0.0));
    return APP_OK;
}

/* Stores in meta which texts replace the benchmark's own, so that every result shows it. */
static void note_sources(struct eval_sample *s, const struct eval_source *w, const struct eval_task *task)
{
    const bool hides = task->flags & EVAL_HIDES_IN_TEXT;
    if (hides)
        eval_set_meta(s, "haystack", json_string(w->haystack.name));
    if (eval_task_is_of(task, "ruler"))
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
        WNW_TRY(make_sample(s, &len, &d, n_target, index));
        if (s->too_few)
            return too_short(task, n_target, 0);
        if (s->unmade)
            return APP_OK;
        if (len.fits) {
            eval_set_meta(s, "tokens", json_integer(len.n));
            note_sources(s, w, task);
            WNW_TRY(note_depth(s, w));
            return s->no_memory ? eval_no_memory("a sample") : APP_OK;
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

double eval_grid_depth(const struct eval_source *w, int32_t index)
{
    return w->depths[index / w->n_trials % w->n_depths];
}

void eval_note_grid(struct eval_sample *s, const struct eval_source *w)
{
    eval_set_meta(s, "grid_depth", json_real(eval_grid_depth(w, s->index)));
    eval_set_meta(s, "trial", json_integer(s->index % w->n_trials));
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
