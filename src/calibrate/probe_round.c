/* SPDX-License-Identifier: MIT */
#include "calibrate/probe_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const wnw__probe_chat_names[] = {"auto", "none", NULL};
const char *const wnw__probe_forced_names[] = {"auto", "never", "always", NULL};

/* ---- One probe ---- */

struct probe_unit {
    struct wnw__probe_round *r;
    const struct wnw__probe *probe;
};

static int judge(struct wnw__probe_round *r, const struct wnw__probe *p)
{
    const struct wnw__probe_play *play = &r->play;
    char *text;
    WNW_TRY(wnw_detokenize(r->c->m, play->tokens, play->n, &text));
    r->recall = play->forced ? (double)play->n_predicted / play->n : wnw__word_recall(p->answer, text);
    r->answered = r->o->forced == WNW_PROBE_FORCED_ALWAYS || 100 * r->recall > r->o->recall;
    wnw_free(text);
    return WNW_OK;
}

static int run_probe(wnw_calibration *c, void *user, json_t **result)
{
    const struct probe_unit *t = user;
    struct wnw__probe_round *r = t->r;
    WNW_TRY(r->scoring->begin(r->user, t->probe));
    WNW_TRY(wnw__probe_play(c, t->probe, &r->play));
    WNW_TRY(judge(r, t->probe));
    json_t *v = json_pack("{s:b}", "answered", r->answered);
    if (v && !r->scoring->write(r->user, v)) {
        json_decref(v);
        v = NULL;
    }
    *result = v;
    return WNW_OK;
}

static int take(struct wnw__probe_round *r, const struct wnw__probe *p, const json_t *v, const char *unit)
{
    const json_t *flag = json_object_get(v, "answered");
    r->answered = json_is_true(flag);
    if (!json_is_boolean(flag) || !r->scoring->read(r->user, v))
        return wnw__calibrate_damaged(r->c, unit);
    if (!r->answered)
        return WNW_OK;
    WNW_TRY(r->scoring->take(r->user, p));
    r->n_counted++;
    return WNW_OK;
}

static int one_probe(struct wnw__probe_round *r, int32_t i)
{
    struct wnw__probe p;
    WNW_TRY(wnw__probe_make(&p, r->c, &r->grid, i));
    r->play.forced = r->forced;
    struct probe_unit t = {r, &p};
    char name[64];
    snprintf(name, sizeof name, "%sprobe %s", r->forced ? "forced " : "", p.id);
    const struct wnw__calibrate_unit unit = {
        .name = name, .cost = p.n + r->o->steps, .run = run_probe, .user = &t};
    json_t *v;
    int rc = wnw__calibrate_unit(r->c, &unit, &v);
    if (rc == WNW_OK)
        rc = take(r, &p, v, name);
    json_decref(v);
    wnw__probe_free(&p);
    return rc;
}

/* ---- All probes ---- */

static int64_t cost_of(const struct wnw__probe_round *r)
{
    return (int64_t)wnw__probe_grid_n(&r->grid) * (r->grid.shortest + r->grid.longest) / 2;
}

/* Plays all probes. Fails if no probe counts and no other way is left. */
static int all_probes(struct wnw__probe_round *r, bool last)
{
    const int32_t n = wnw__probe_grid_n(&r->grid);
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(one_probe(r, i));
    if (r->n_counted > 0 || !last)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "the model answers none of %d probes, so there is %s; shorter probes may help "
                     "(longest=N), or have the answers fed to it with forced=always",
                     (int)n, r->scoring->nothing);
}

int wnw__probe_round_run(struct wnw__probe_round *r)
{
    WNW_TRY(wnw__calibrate_begin(r->c, cost_of(r)));
    r->forced = r->o->forced == WNW_PROBE_FORCED_ALWAYS;
    if (!r->forced) {
        const bool never = r->o->forced == WNW_PROBE_FORCED_NEVER;
        WNW_TRY(all_probes(r, never));
        r->n_answered = r->n_counted;
        if (never || (r->n_counted > 0 && r->n_counted >= r->o->least))
            return WNW_OK;
        r->c->total += cost_of(r);
        r->n_counted = 0;
        r->scoring->forget(r->user);
        r->forced = true;
    }
    return all_probes(r, true);
}

int wnw__probe_round_open(struct wnw__probe_round *r)
{
    const struct wnw__probe_options *o = r->o;
    r->grid = (struct wnw__probe_grid){.n_facts = o->facts,
                                       .n_lengths = o->lengths,
                                       .n_depths = o->depths,
                                       .shortest = o->shortest,
                                       .longest = o->longest,
                                       .n_answer = o->steps,
                                       .raw = o->chat == WNW_PROBE_CHAT_NONE};
    wnw__probe_grid_resolve(&r->grid, r->c);
    WNW_TRY(wnw__probe_grid_open(&r->grid, r->c));
    r->play.n_answer = o->steps;
    r->play.look = r->scoring->look;
    r->play.user = r->user;
    r->play.tokens = malloc((size_t)o->steps * sizeof *r->play.tokens);
    return r->play.tokens ? WNW_OK
                          : wnw__fail(WNW_E_NOMEM, "no memory for answers of %d tokens", (int)o->steps);
}

void wnw__probe_round_free(struct wnw__probe_round *r)
{
    wnw__probe_grid_free(&r->grid);
    free(r->play.tokens);
}

/* ---- Results ---- */

void wnw__probe_round_report(const struct wnw__probe_round *r, struct wnw__calibrate_text *report)
{
    if (r->o->forced != WNW_PROBE_FORCED_ALWAYS)
        wnw__calibrate_print(report, "%d of %d probes answered\n", (int)r->n_answered,
                             (int)wnw__probe_grid_n(&r->grid));
    if (r->forced)
        wnw__calibrate_print(report, "%s are of %d probes whose answers were fed\n", r->scoring->numbers,
                             (int)r->n_counted);
}

bool wnw__probe_round_set(const struct wnw__probe_round *r, json_t *results)
{
    json_t *v = json_pack("{s:i, s:i, s:i, s:b}", "probes", wnw__probe_grid_n(&r->grid), "answered",
                          r->n_answered, "counted", r->n_counted, "forced", r->forced);
    return json_object_update_new(results, v) == 0;
}

void wnw__probe_round_dump(const struct wnw__probe_round *r, struct wnw__calibrate_text *dump,
                           const struct wnw__probe *p, const double *a, const double *b)
{
    const int32_t n_head = r->c->info.n_head, n = r->c->info.n_layer * n_head;
    for (int32_t i = 0; dump && i < n; i++)
        wnw__calibrate_print(dump, "%s,%d,%d,%.9g,%.9g\n", p->id, (int)(i / n_head), (int)(i % n_head), a[i],
                             b[i]);
}
