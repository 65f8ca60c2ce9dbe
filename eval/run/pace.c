/* SPDX-License-Identifier: MIT */
/* How long samples take: a short reading and a few steps of generation say how fast the machine is. */
#include "eval/run/pace.h"

#include "app/console.h"
#include "app/process.h"
#include "app/values.h"
#include "eval/base/grow.h"
#include "eval/base/stats.h"
#include "eval/run/manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { READ = 512, STEPS = 16, SEVERAL_TURNS = 5 };

/* Milliseconds of "90s", "10m" or "2h". */
static int read_time(double *ms, const char *text)
{
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    const size_t len = strlen(text);
    const char *unit = len > 1 ? strchr(units, text[len - 1]) : NULL;
    char *digits = strndup(text, len > 0 ? len - 1 : 0);
    double x = 0;
    const bool good = digits && unit && app_parse_real(&x, digits) && x > 0 && x < 1e6;
    free(digits);
    *ms = x * 1e3 * (unit ? seconds[unit - units] : 1);
    return good ? APP_OK
                : app_fail(APP_BAD_INPUT, "--time-budget '%s': give a number with s, m or h, such as 10m",
                           text);
}

/* Reads some tokens and generates a few. */
static int measure(struct eval_pace *p, const struct eval_runtime *m)
{
    int32_t ids[READ];
    wnw_session *s = NULL;
    const int32_t n = m->info.n_ctx_train - STEPS < READ ? m->info.n_ctx_train - STEPS : READ;
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((int64_t)i * 7919 % m->info.n_vocab);
    int status = n < 1 ? WNW_OK : wnw_session_new_on(&s, m->engine, NULL);
    double start = app_now_ms();
    if (status == WNW_OK && s)
        status = wnw_session_prefill(s, ids, n, NULL, NULL);
    p->token_ms = n > 0 ? (app_now_ms() - start) / n : 1;
    start = app_now_ms();
    for (int32_t i = 0; status == WNW_OK && s && i < STEPS; i++)
        status = wnw_session_decode(s, ids[i % n]);
    p->step_ms = (app_now_ms() - start) / STEPS;
    wnw_session_free(s);
    p->measured = true;
    return eval_status_code(status);
}

/* Readings and batches of one sample. */
static void count_work(struct eval_pace *p, const struct eval_runtime *m, const struct eval_configs *c)
{
    int32_t n_here = 0, n_types = 1;
    for (int32_t i = 0; i < c->n; i++) {
        const struct eval_config *a = &c->items[i], *before = i > 0 ? &c->items[i - 1] : NULL;
        n_types += before && !eval_configs_share_reading(before, a);
        if (before && (before->mode != a->mode || !eval_configs_share_reading(before, a)))
            n_here = 0;
        p->n_reads += a->own_read;
        p->n_waves += n_here++ % m->batch == 0;
    }
    p->n_reads += n_types * c->n_groups;
}

double eval_pace_cost(const struct eval_pace *p, const struct eval_item *item, int32_t index)
{
    const bool probe = index >= EVAL_GATE_FIRST;
    const int32_t n_turns = eval_task_is_of(item->task, "scb") ? SEVERAL_TURNS : 1;
    const double n = item->n_target > 0 ? item->n_target : 4096; /* sets from files: about that long */
    if (!eval_item_fits(item, p->n_ctx))
        return 0;
    return n * (probe ? 1 : p->n_reads) * p->token_ms +
           (double)item->max_new * n_turns * (probe ? 1 : p->n_waves) * p->step_ms;
}

/* probes: 1 with the probes, 0 without. */
static double cost_of_all(const struct eval_pace *p, const struct eval_items *items, int probes)
{
    double ms = 0;
    for (int32_t i = 0; i < items->n; i++)
        ms += items->items[i].n * eval_pace_cost(p, &items->items[i], 0) +
              probes * items->items[i].n_probes * eval_pace_cost(p, &items->items[i], EVAL_GATE_FIRST);
    return ms;
}

/* Each task keeps one sample. Samples that are left out anyway are not counted again. Fewer probes would let tasks pass by chance. So all
 * probes stay if they take at most half of the time, and all are left out if they take more. */
void eval_pace_cut(const struct eval_pace *p, struct eval_items *items, int32_t n_shards, double ms)
{
    const double all = cost_of_all(p, items, 1) / n_shards, of_samples = cost_of_all(p, items, 0) / n_shards;
    const bool probed = all - of_samples <= ms / 2;
    const double share = (ms - (probed ? all - of_samples : 0)) / of_samples;
    if (all <= ms)
        return;
    if (!probed)
        app_note("--time-budget: no probes; every task counts, whether the full cache can solve it or not");
    for (int32_t i = 0; i < items->n; i++) {
        struct eval_item *item = &items->items[i];
        const int32_t n = (int32_t)floor(item->n * (share < 1 ? share : 1)), now = n < 1 ? 1 : n;
        if (!eval_item_fits(item, p->n_ctx))
            continue;
        app_note("--time-budget: %s at %d tokens: %d samples instead of %d", item->task->name,
                 (int)item->n_target, (int)now, (int)item->n);
        item->n = now;
        item->n_probes = probed ? item->n_probes : 0;
    }
}

int eval_pace_open(struct eval_pace *p, const struct eval_runtime *m, const struct eval_configs *c,
                   struct eval_setup *s, int32_t n_shards)
{
    const char *budget = s->args->time_budget;
    double ms = 0;
    *p = (struct eval_pace){.token_ms = 1,
                            .step_ms = 4, /* a step is that much slower than a token of a prompt */
                            .n_ctx = m->info.n_ctx_train};
    count_work(p, m, c);
    if (budget)
        WNW_TRY(read_time(&ms, budget));
    if (s->args->app.devices) /* they are not measured */
        return APP_OK;
    if (budget || !s->args->quiet || !eval_manifest_exists(s->args->app.out))
        WNW_TRY(measure(p, m));
    if (budget && !eval_manifest_samples(s, s->args->app.out))
        eval_pace_cut(p, &s->items, n_shards, ms);
    return APP_OK;
}
