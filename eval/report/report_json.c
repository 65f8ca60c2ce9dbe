/* SPDX-License-Identifier: MIT */
/* The report for programs, and what the page draws: one JSON object. docs/reference/report.md says what its members are. */
#include "eval/report/report_impl.h"

#include "app/console.h"
#include "app/json.h"
#include "app/page.h"
#include "eval/base/grow.h"
#include "eval/results/map.h"
#include "eval/results/planned_contrasts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_interval(json_t **o, const struct eval_paired *p)
{
    static const char *const spreads[] = {
        [EVAL_SPREAD_OK] = "ok", [EVAL_SPREAD_FEW] = "few", [EVAL_SPREAD_NONE] = "none"};
    app_json_set(o, "delta", app_json_number(p->delta));
    app_json_set(o, "lo", app_json_number(p->over.lo));
    app_json_set(o, "hi", app_json_number(p->over.hi));
    app_json_set(o, "spread", isnan(p->delta) ? json_null() : json_string(spreads[p->spread]));
    app_json_set(o, "verdict", isnan(p->delta) ? json_null() : json_string(eval_verdict(p)));
    app_json_set(o, "equivalent", isnan(p->delta) ? json_null() : json_boolean(eval_equivalent(p)));
    app_json_set(o, "tasks_lo", app_json_number(p->tasks.lo));
    app_json_set(o, "tasks_hi", app_json_number(p->tasks.hi));
    if (!isnan(p->icc))
        app_json_set(o, "icc", json_real(p->icc));
}

/* A number of a cell. */
struct cell_field {
    const char *key;
    double value; /* NaN = there is none */
    bool always;  /* it is null where there is none */
    bool whole;   /* it counts something */
};

/* Fills in the numbers in the order of columns and returns how many there are. */
static size_t cell_fields(struct cell_field out[EVAL_MAX_CELL_FIELDS], const struct eval_cell *c)
{
    const bool binary = c->binary && c->n > 0, pairs = binary && !isnan(c->delta.delta);
    const struct cell_field before[] = {
        {"n", (double)c->n, true, true},
        {"mean", c->mean, true, false},
        {"full", c->full, true, false},
        {"delta", c->delta.delta, true, false},
        {"lo", c->delta.over.lo, true, false},
        {"hi", c->delta.over.hi, true, false},
        {"retention", eval_cell_retention(c), true, false},
        {"wilson_lo", binary ? c->wilson.lo : NAN, false, false},
        {"wilson_hi", binary ? c->wilson.hi : NAN, false, false},
        {"lost", pairs ? (double)c->discordant.lost : NAN, false, true},
        {"gained", pairs ? (double)c->discordant.gained : NAN, false, true},
        {"p", pairs ? c->discordant.p : NAN, false, false},
        {"verdict", NAN, true, false}, /* set_interval writes these */
        {"equivalent", NAN, true, false},
        {"tasks_lo", NAN, true, false},
        {"tasks_hi", NAN, true, false},
        {"icc", NAN, false, false},
    };
    const struct cell_field after[] = {{"fgt_lo", c->first.lo, false, false},
                                       {"fgt_hi", c->first.hi, false, false},
                                       {"kl_lo", c->kl.lo, false, false},
                                       {"kl_hi", c->kl.hi, false, false},
                                       {"clusters", (double)c->n_clusters, true, true}};
    size_t n = sizeof before / sizeof *before;
    memcpy(out, before, sizeof before);
    for (enum eval_measure m = EVAL_M_PARTIAL; m < EVAL_N_MEASURES; m++)
        out[n++] = (struct cell_field){eval_measure_name(m), c->m[m], false, false};
    memcpy(out + n, after, sizeof after);
    return n + sizeof after / sizeof *after;
}

size_t eval_cell_keys(const char *keys[EVAL_MAX_CELL_FIELDS])
{
    struct cell_field fields[EVAL_MAX_CELL_FIELDS];
    const size_t n = cell_fields(fields, &(struct eval_cell){0});
    for (size_t i = 0; i < n; i++)
        keys[i] = fields[i].key;
    return n;
}

json_t *eval_cell_json(const struct eval_cell *c)
{
    struct cell_field fields[EVAL_MAX_CELL_FIELDS];
    const size_t n = cell_fields(fields, c);
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++)
        if (fields[i].always || !isnan(fields[i].value))
            app_json_set(&o, fields[i].key,
                         fields[i].whole ? json_integer((json_int_t)fields[i].value)
                                         : app_json_number(fields[i].value));
    set_interval(&o, &c->delta);
    return o;
}

/* The cells of a row by task and length. */
static json_t *tasks_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < b->n_strata; i++) {
        json_t *cell = eval_cell_json(&row->cell[i]);
        app_json_set(&cell, "task", json_string(run->tasks[b->strata[i].task]));
        app_json_set(&cell, "N", json_integer(b->strata[i].n_target));
        app_json_append(&list, cell);
    }
    return list;
}

/* The means of n groups of a row: kinds of answers, domains, or buckets. */
static json_t *means_json(const struct eval_block *b, const struct eval_row *row, const char *key,
                          int32_t first, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = first; i < first + n; i++) {
        json_t *cell = eval_cell_json(&row->group[i]);
        app_json_set(&cell, key, json_string(b->groups[i].name));
        app_json_append(&list, cell);
    }
    return list;
}

static json_t *row_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row)
{
    const struct eval_variant *v = &run->variants[row->variant];
    const int32_t first_domain = 1 + EVAL_N_ANSWERS;
    json_t *o = json_pack("{s:s,s:o,s:s,s:s,s:s,s:s,s:o,s:o,s:b,s:b,s:o,s:b,s:o,s:o,s:o}", "policy",
                          v->policy, "asked", eval_asked_for(run, v), "size", v->size, "kv_type", v->kv_type,
                          "more", v->more, "config", v->id, "label", eval_label_json(run, v, true), "name",
                          eval_label_json(run, v, false), "full", (int)v->full, "baseline",
                          row->variant == b->baseline, "removed", app_json_number(row->removed), "off_target",
                          (int)row->off_target, "macro", eval_cell_json(&row->macro), "answers",
                          means_json(b, row, "answer", 1, EVAL_N_ANSWERS), "domains",
                          means_json(b, row, "domain", first_domain, b->n_domains));
    if (b->n_buckets > 0)
        app_json_set(&o, "buckets", means_json(b, row, "bucket", first_domain + b->n_domains, b->n_buckets));
    app_json_set(&o, "tasks", tasks_json(run, b, row));
    if (b->n_target != EVAL_ALL_LENGTHS)
        app_json_set(&o, "costs", eval_costs_json(run, b, row));
    return o;
}

/* configs[i] is the row of points[i], null for the full cache. */
static json_t *curve_json(const struct eval_curve *c, const struct eval_run *run, const struct eval_block *b)
{
    const struct eval_variant *v = &run->variants[b->rows[c->first].variant];
    json_t *points = json_array(), *tolerance = json_array(), *configs = json_array();
    for (int32_t i = 0; i < c->n; i++) {
        const char *config = c->row[i] < 0 ? NULL : run->variants[b->rows[c->row[i]].variant].id;
        app_json_append(&points, json_pack("[o,o]", app_json_number(c->r[i]), app_json_number(c->score[i])));
        app_json_append(&configs, json_pack("s?", config));
    }
    for (int i = 0; i < EVAL_N_LOSSES; i++) {
        const bool beyond = isinf(c->tolerance[i]);
        app_json_append(&tolerance, json_pack("{s:f,s:o,s:b}", "loss", eval_losses[i], "removed",
                                              app_json_number(beyond ? c->r[c->n - 1] : c->tolerance[i]),
                                              "or_more", (int)beyond));
    }
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "policy", v->policy, "kv_type", v->kv_type,
                     "more", v->more, "name", eval_label_json(run, v, false), "points", points, "configs",
                     configs, "auc", app_json_number(c->auc), "auc_rel", app_json_number(c->auc_rel),
                     "auc_one", app_json_number(c->auc_one), "tolerance", tolerance);
}

static json_t *curves_json(const struct eval_tables *t, const struct eval_block *b)
{
    struct eval_curve *curves;
    int32_t n;
    json_t *list = json_array();
    if (!eval_curves_make(&curves, &n, t, b))
        app_json_append(&list, NULL);
    for (int32_t i = 0; i < n; i++)
        if (curves[i].has_auc)
            app_json_append(&list, curve_json(&curves[i], t->run, b));
    free(curves);
    return list;
}

/* ---- Maps ---- */

/* A report that has as many cells of maps takes no further maps, so that a page stays small; it names what it lacks. */
enum { MOST_CELLS = 24000 };

/* The cells [length, depth, points, samples] of a map. */
static json_t *map_json(const struct eval_tables *t, const struct eval_map *m)
{
    json_t *cells = json_array();
    for (int32_t k = 0; k < m->n_depths * m->n_lengths; k++)
        if (m->n[k] > 0)
            app_json_append(&cells, json_pack("[i,f,f,i]", (int)m->length[k % m->n_lengths],
                                              m->depth[k / m->n_lengths], m->value[k], m->n[k]));
    return json_pack("{s:o,s:s,s:o,s:f,s:o,s:o,s:o,s:i,s:o}", "task", app_json_text(t->run->tasks[m->task]),
                     "score", eval_measure_name(m->score->measure), "config",
                     app_json_text(t->run->variants[t->blocks[m->block].rows[m->row].variant].id), "mean",
                     m->mean, "wilson_lo", app_json_number(m->binary ? m->wilson.lo : NAN), "wilson_hi",
                     app_json_number(m->binary ? m->wilson.hi : NAN), "unprotected",
                     app_json_number(m->unprotected), "protected", (int)m->n_protected, "cells", cells);
}

/* Adds those of a task's maps that show a score to *list as long as *n_cells leaves room, which counts them. The maps that are left
 * out are named. */
static void add_maps(json_t **list, json_t **left_out, int32_t *n_cells, const struct eval_tables *t,
                     const struct eval_map *map, int32_t n_map, const struct eval_map_score *score)
{
    int32_t n = 0, n_left = 0;
    for (int32_t i = 0; i < n_map; i++) {
        if (map[i].score != score)
            continue;
        n++;
        if (*n_cells < MOST_CELLS)
            app_json_append(list, map_json(t, &map[i]));
        else
            n_left++;
        *n_cells += map[i].n_depths * map[i].n_lengths;
    }
    if (n_left > 0)
        app_json_append(left_out, json_pack("{s:s,s:o,s:s,s:i,s:i}", "mode", t->blocks[map->block].mode,
                                            "task", app_json_text(t->run->tasks[map->task]), "score",
                                            eval_measure_name(score->measure), "n", n_left, "of", n));
}

/* Sets the maps of all protocols in blocks, and maps_left_out in the run. Every task's own score comes before further ones,
 * so that these are what a large report lacks. */
static void add_all_maps(json_t **o, json_t *blocks, const struct eval_tables *t,
                         const struct eval_maps *maps, const char *only)
{
    int32_t n_cells = 0, n;
    json_t **lists = calloc((size_t)t->n + 1, sizeof *lists), *left_out = json_array();
    for (int32_t i = 0; lists && i < t->n; i++)
        lists[i] = json_array();
    for (int k = 0; lists && k < EVAL_N_MAP_SCORES; k++)
        for (int32_t i = 0; eval_map_shows(only, &eval_map_scores[k]) && i < t->n; i++)
            for (int32_t task = 0; task < t->run->n_tasks; task++) {
                const struct eval_map *map = eval_maps_of(&n, maps, i, task);
                add_maps(&lists[i], &left_out, &n_cells, t, map, n, &eval_map_scores[k]);
            }
    for (int32_t i = 0; i < t->n; i++) {
        json_t *block = json_array_get(blocks, (size_t)i), *of = lists ? lists[i] : NULL;
        if (t->blocks[i].n_target != EVAL_ALL_LENGTHS)
            json_decref(of);
        else if (!of || json_object_set_new(block, "maps", of) != 0)
            app_json_append(&left_out, NULL);
    }
    free(lists);
    app_json_set(o, "maps_left_out", left_out);
}

/* The scores of maps in words. */
static json_t *scores_json(void)
{
    json_t *o = json_object();
    for (int k = 0; k < EVAL_N_MAP_SCORES; k++)
        app_json_set(&o, eval_measure_name(eval_map_scores[k].measure),
                     json_string(eval_map_scores[k].about));
    return o;
}

/* ---- Winners and turns ---- */

static json_t *versus_numbers(const struct eval_versus *v)
{
    json_t *o = json_pack("{s:I,s:o,s:o}", "n", (json_int_t)v->n, "mean_a", app_json_number(v->mean_a),
                          "mean_b", app_json_number(v->mean_b));
    set_interval(&o, &v->delta);
    return o;
}

static json_t *winner_json(const struct eval_run *run, const struct eval_winner *w)
{
    const struct eval_variant *best = &run->variants[w->best];
    json_t *others = json_array();
    for (int32_t i = 0; i < w->n_others; i++) {
        json_t *other = versus_numbers(&w->other[i]);
        app_json_set(&other, "config", json_string(run->variants[w->other[i].b].id));
        app_json_append(&others, other);
    }
    return json_pack("{s:s,s:s,s:s,s:o}", "size", best->size, "kv_type", best->kv_type, "best", best->id,
                     "others", others);
}

static int set_winners(json_t **o, const struct eval_tables *t, const struct eval_block *b)
{
    struct eval_winner *winners;
    int32_t n;
    json_t *list = json_array();
    const int rc = eval_winners_make(&winners, &n, t, b);
    for (int32_t i = 0; rc == APP_OK && i < n; i++)
        app_json_append(&list, winner_json(t->run, &winners[i]));
    eval_winners_free(winners, n);
    app_json_set(o, "winners", list);
    return rc;
}

/* Scores by question, for tasks with several questions: scores[i] of the i-th question, for the first ones; n: the number of questions. */
static json_t *turns_json(const struct eval_tables *t, const struct eval_block *b)
{
    json_t *list = json_array();
    for (int32_t task = 0; task < t->run->n_tasks; task++) {
        double mean[EVAL_MAX_TURNS];
        const int32_t n = eval_turn_means(mean, t->run, b, task, -1), n_shown = eval_turns_shown(n);
        json_t *rows = n_shown < 2 ? NULL : json_array();
        if (n_shown < 2)
            continue;
        for (int32_t i = 0; i < b->n_rows; i++) {
            json_t *scores = json_array();
            eval_turn_means(mean, t->run, b, task, b->rows[i].variant);
            for (int32_t k = 0; k < n_shown; k++)
                app_json_append(&scores, app_json_number(mean[k]));
            app_json_append(&rows, json_pack("{s:o,s:o}", "config",
                                             app_json_text(t->run->variants[b->rows[i].variant].id), "scores",
                                             scores));
        }
        app_json_append(&list, json_pack("{s:o,s:i,s:o}", "task", app_json_text(t->run->tasks[task]), "n", n,
                                         "rows", rows));
    }
    return list;
}

/* ---- Blocks ---- */

static json_t *gate_json(const struct eval_run *run, const struct eval_block *b)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < b->n_strata; i++) {
        const struct eval_stratum *s = &b->strata[i];
        app_json_append(&list, json_pack("{s:o,s:i,s:b,s:b,s:I,s:o,s:I,s:o}", "task",
                                         app_json_text(run->tasks[s->task]), "N", s->n_target, "informative",
                                         (int)s->informative, "scored", (int)s->scored, "probes",
                                         (json_int_t)s->n_probes, "probe_mean", app_json_number(s->probes),
                                         "own", (json_int_t)s->n_own, "own_mean", app_json_number(s->own)));
    }
    return list;
}

static json_t *length_json(const struct eval_block *b)
{
    return b->n_target == EVAL_ALL_LENGTHS ? json_string("all") : json_integer(b->n_target);
}

static int block_json(json_t **out, const struct eval_tables *t, const struct eval_block *b)
{
    json_t *rows = json_array(), *cases = NULL;
    int rc = APP_OK;
    for (int32_t i = 0; i < b->n_rows; i++)
        app_json_append(&rows, row_json(t->run, b, &b->rows[i]));
    json_t *o = json_pack("{s:s,s:o,s:b,s:o,s:o,s:o}", "mode", b->mode, "N", length_json(b), "repeats",
                          (int)eval_block_is_extra(b), "tasks", gate_json(t->run, b), "rows", rows, "curves",
                          curves_json(t, b));
    if (b->n_target != EVAL_ALL_LENGTHS) {
        app_json_set(&o, "predictions", eval_predictions_json(t, b));
    } else {
        rc = set_winners(&o, t, b);
        app_json_set(&o, "turns", turns_json(t, b));
        if (rc == APP_OK)
            rc = eval_cases_json(&cases, t, b);
        app_json_set(&o, "cases", cases);
    }
    *out = o;
    return rc;
}

static json_t *versus_json(const struct eval_run *run, const struct eval_versus *v)
{
    const struct eval_variant *a = &run->variants[v->a], *b = &run->variants[v->b];
    json_t *o = versus_numbers(v);
    app_json_set(&o, "mode", json_string(v->block->mode));
    app_json_set(&o, "N", length_json(v->block));
    app_json_set(&o, "a", json_string(a->policy));
    app_json_set(&o, "b", json_string(b->policy));
    app_json_set(&o, "size", json_string(a->full ? b->size : a->size));
    app_json_set(&o, "kv_type", json_string(a->kv_type));
    return o;
}

/* run.json without its list of configs, which the rows have. */
static json_t *info_json(const struct eval_run *run)
{
    json_t *o = json_copy(run->info);
    json_object_del(o, "configs");
    return o;
}

/* A contrast: what was asked, and what came out. */
static json_t *planned_json(const struct eval_planned_contrast *p)
{
    const struct eval_contrast *c = &p->contrast;
    json_t *o = p->measured ? versus_numbers(&p->versus) : json_object();
    app_json_set(&o, "mode", json_string(c->mode));
    app_json_set(&o, "N", c->n_target > 0 ? json_integer(c->n_target) : json_string("all"));
    app_json_set(&o, "a", json_string(c->a.policy));
    app_json_set(&o, "b", json_string(c->b.policy));
    app_json_set(&o, "size", json_string(c->a.size));
    app_json_set(&o, "size_b", json_string(c->b.size));
    app_json_set(&o, "kv_type", json_string(c->a.kv_type));
    app_json_set(&o, "kv_type_b", json_string(c->b.kv_type));
    app_json_set(&o, "evict", c->a.evict ? json_string(c->a.evict) : json_null());
    app_json_set(&o, "evict_b", c->b.evict ? json_string(c->b.evict) : json_null());
    app_json_set(&o, "every", c->a.every ? json_string(c->a.every) : json_null());
    app_json_set(&o, "every_b", c->b.every ? json_string(c->b.every) : json_null());
    app_json_set(&o, "of", json_string(eval_contrast_of_kl(c) ? "kl" : "score"));
    if (eval_contrast_of_kl(c))
        app_json_set(&o, "equivalent", json_null()); /* which is said of points */
    app_json_set(&o, "measured", json_boolean(p->measured));
    app_json_set(&o, "p", app_json_number(p->measured ? p->p : NAN));
    app_json_set(&o, "p_holm", app_json_number(p->measured ? p->p_holm : NAN));
    app_json_set(&o, "verdict", json_string(p->verdict));
    return o;
}

static int set_contrasts(json_t **o, const struct eval_tables *t)
{
    struct eval_planned_contrast *planned;
    int32_t n;
    json_t *list = json_array();
    const int rc = eval_planned_contrasts_make(&planned, &n, t);
    for (int32_t i = 0; rc == APP_OK && i < n; i++)
        app_json_append(&list, planned_json(&planned[i]));
    eval_planned_contrasts_free(planned, n);
    app_json_set(o, "contrasts", list);
    return rc;
}

static int run_json(json_t **out, const struct eval_report *r, int32_t i)
{
    const struct eval_tables *t = &r->tables[i];
    const struct eval_run *run = t->run;
    const json_t *substitutes = json_object_get(run->info, "stand_ins");
    json_t *folders = json_array(), *blocks = json_array(), *versus = json_array();
    int rc = APP_OK;
    for (int32_t k = 0; k < run->n_folders; k++)
        app_json_append(&folders, app_json_text(run->folders[k]));
    for (int32_t k = 0; rc == APP_OK && k < t->n; k++) {
        json_t *block;
        rc = block_json(&block, t, &t->blocks[k]);
        app_json_append(&blocks, block);
    }
    for (int32_t k = 0; k < r->n_versus[i]; k++)
        app_json_append(&versus, versus_json(run, &r->versus[i][k]));
    json_t *o =
        json_pack("{s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:b,s:o}", "model", app_json_text(run->model), "folders",
                  folders, "answers", (json_int_t)run->n, "bad", (json_int_t)run->n_bad, "repeated",
                  (json_int_t)run->n_twice, "torn", (json_int_t)run->n_torn, "too_long",
                  (json_int_t)run->n_too_long, "alone", (int)eval_costs_are_separate(run), "stand_ins",
                  json_is_array(substitutes) ? json_deep_copy(substitutes) : json_array());
    if (rc == APP_OK)
        rc = set_contrasts(&o, t);
    app_json_set(&o, "notes", eval_notes_json(t));
    add_all_maps(&o, blocks, t, &r->maps[i], r->args->niah_score);
    app_json_set(&o, "blocks", blocks);
    app_json_set(&o, "papers", eval_papers_json(&r->papers, t));
    app_json_set(&o, "info", info_json(run));
    if (r->names[0])
        app_json_set(&o, "compare", versus);
    else
        json_decref(versus);
    *out = o;
    return rc;
}

int eval_report_json(json_t **out, const struct eval_report *r)
{
    json_t *o = json_object(), *runs = json_array();
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < r->runs.n; i++) {
        json_t *run;
        rc = run_json(&run, r, i);
        app_json_append(&runs, run);
    }
    app_json_set(&o, "v", json_integer(1));
    app_json_set(&o, "winnow", json_string(wnw_version()));
    app_json_set(&o, "compared",
                 r->names[0] ? json_pack("[o,o]", app_json_text(r->names[0]), app_json_text(r->names[1]))
                             : json_array());
    app_json_set(&o, "margin", json_integer(EVAL_MARGIN_POINTS));
    app_json_set(&o, "scores", scores_json());
    app_json_set(&o, "runs", runs);
    *out = o;
    if (rc == APP_OK && !o)
        rc = eval_no_memory("the report");
    return rc;
}

/* ---- What the page needs of it ---- */

/* Takes the numbers out of a task's cell that no table has for single tasks; costs have members of their own. */
static void slim_cells(json_t *cells)
{
    static const char *const of_means[] = {"kl_lo", "kl_hi", "tasks_lo", "tasks_hi", "icc"};
    for (size_t i = 0; i < json_array_size(cells); i++) {
        for (size_t k = 0; k < sizeof of_means / sizeof *of_means; k++)
            json_object_del(json_array_get(cells, i), of_means[k]);
        for (enum eval_measure m = EVAL_M_PARTIAL; m < EVAL_N_MEASURES; m++)
            if (m != EVAL_M_FGT && m != EVAL_M_AGREE && m != EVAL_M_DNLL && m != EVAL_M_KL)
                json_object_del(json_array_get(cells, i), eval_measure_name(m));
    }
}

static void slim_block(json_t *block)
{
    const json_t *rows = json_object_get(block, "rows");
    const bool whole = json_is_string(json_object_get(block, "N"));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        slim_cells(json_object_get(row, "tasks"));
        slim_cells(json_object_get(row, "answers"));
        slim_cells(json_object_get(row, "domains"));
        slim_cells(json_object_get(row, "buckets"));
        if (whole) /* the blocks of single lengths have the same cells */
            json_object_del(row, "tasks");
        else
            json_object_del(block, "curves");
    }
}

/* A page is given to others. False without memory. */
static bool hide_paths(json_t *run)
{
    json_t *names = json_array();
    const json_t *folder;
    size_t i;
    json_array_foreach(json_object_get(run, "folders"), i, folder)
        app_json_append(&names, app_page_name_of_path(json_string_value(folder)));
    const bool good = json_object_set_new(run, "folders", names) == 0;
    return json_object_set_new(run, "info", app_page_without_paths(json_object_get(run, "info"))) == 0 &&
           good;
}

json_t *eval_report_page_json(const json_t *report)
{
    json_t *o = json_deep_copy(report);
    const json_t *runs = json_object_get(o, "runs");
    bool good = o != NULL;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i);
        const json_t *blocks = json_object_get(run, "blocks");
        for (size_t k = 0; k < json_array_size(blocks); k++)
            slim_block(json_array_get(blocks, k));
        good = hide_paths(run) && good;
    }
    if (good)
        return o;
    json_decref(o);
    return NULL;
}
