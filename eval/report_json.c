/* SPDX-License-Identifier: MIT */
/* The report for programs: one JSON object. */
#include "eval/report_impl.h"

#include "app/json.h"
#include "eval/heat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A number, or null where there is none. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void set_interval(json_t **o, const struct eval_paired *p)
{
    app_json_set(o, "delta", number(p->delta));
    app_json_set(o, "lo", number(p->over.lo));
    app_json_set(o, "hi", number(p->over.hi));
    app_json_set(o, "verdict", isnan(p->delta) ? json_null() : json_string(eval_verdict(p)));
}

static json_t *cell_json(const struct eval_cell *c)
{
    json_t *o = json_object();
    app_json_set(&o, "n", json_integer((json_int_t)c->n));
    app_json_set(&o, "clusters", json_integer((json_int_t)c->n_clusters));
    app_json_set(&o, "mean", number(c->mean));
    app_json_set(&o, "full", number(c->full));
    set_interval(&o, &c->delta);
    app_json_set(&o, "retention", number(eval_cell_retention(c)));
    for (enum eval_measure m = EVAL_M_PARTIAL; m < EVAL_N_MEASURES; m++)
        if (!isnan(c->m[m]))
            app_json_set(&o, eval_measure_name(m), number(c->m[m]));
    if (!isnan(c->first.lo)) {
        app_json_set(&o, "fgt_lo", number(c->first.lo));
        app_json_set(&o, "fgt_hi", number(c->first.hi));
    }
    if (c->binary && c->n > 0) {
        app_json_set(&o, "wilson_lo", number(c->wilson.lo));
        app_json_set(&o, "wilson_hi", number(c->wilson.hi));
        if (!isnan(c->delta.delta)) {
            app_json_set(&o, "lost", json_integer(c->discordant.lost));
            app_json_set(&o, "gained", json_integer(c->discordant.gained));
            app_json_set(&o, "p", number(c->discordant.p));
        }
    }
    return o;
}

/* The cells of a row: of tasks, which have a length, of domains or of buckets. */
static json_t *cells_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row,
                          enum eval_by by)
{
    static const char *const keys[EVAL_N_BY] = {"task", "domain", "bucket"};
    json_t *list = json_array();
    for (int32_t i = 0; i < eval_by_n(b, by); i++) {
        json_t *cell = cell_json(eval_by_cell(row, by, i));
        app_json_set(&cell, keys[by], app_json_text(eval_by_name(run, b, by, i)));
        if (by == EVAL_BY_TASK)
            app_json_set(&cell, "N", json_integer(b->strata[i].n_target));
        app_json_append(&list, cell);
    }
    return list;
}

static json_t *row_json(const struct eval_run *run, const struct eval_block *b, const struct eval_row *row)
{
    const struct eval_variant *v = &run->variants[row->variant];
    json_t *o = json_object();
    app_json_set(&o, "policy", app_json_text(v->policy));
    app_json_set(&o, "size", app_json_text(v->size));
    app_json_set(&o, "kv_type", app_json_text(v->kv_type));
    app_json_set(&o, "more", app_json_text(v->more));
    app_json_set(&o, "config", app_json_text(v->id));
    app_json_set(&o, "removed", number(row->removed));
    app_json_set(&o, "off_target", json_boolean(row->off_target));
    app_json_set(&o, "macro", cell_json(&row->macro));
    app_json_set(&o, "domains", cells_json(run, b, row, EVAL_BY_DOMAIN));
    if (b->n_buckets > 0)
        app_json_set(&o, "buckets", cells_json(run, b, row, EVAL_BY_BUCKET));
    app_json_set(&o, "tasks", cells_json(run, b, row, EVAL_BY_TASK));
    return o;
}

static json_t *curve_json(const struct eval_curve *c, const struct eval_variant *v)
{
    json_t *o = json_object(), *points = json_array(), *tolerance = json_array();
    for (int32_t i = 0; i < c->n; i++)
        app_json_append(&points, json_pack("[o,o]", number(c->r[i]), number(c->score[i])));
    for (int i = 0; i < EVAL_N_LOSSES; i++)
        app_json_append(&tolerance,
                        json_pack("{s:o,s:o,s:b}", "loss", number(eval_losses[i]), "removed",
                                  number(isinf(c->tolerance[i]) ? c->r[c->n - 1] : c->tolerance[i]),
                                  "or_more", isinf(c->tolerance[i]) ? 1 : 0));
    app_json_set(&o, "policy", app_json_text(v->policy));
    app_json_set(&o, "kv_type", app_json_text(v->kv_type));
    app_json_set(&o, "more", app_json_text(v->more));
    app_json_set(&o, "points", points);
    app_json_set(&o, "auc", number(c->auc));
    app_json_set(&o, "auc_rel", number(c->auc_rel));
    app_json_set(&o, "auc_one", number(c->auc_one));
    app_json_set(&o, "tolerance", tolerance);
    return o;
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
            app_json_append(&list,
                            curve_json(&curves[i], &t->run->variants[b->rows[curves[i].first].variant]));
    free(curves);
    return list;
}

/* The maps of a block's methods for one score: cells [length, depth, points, samples]. */
static void add_maps(json_t **list, const struct eval_run *run, const struct eval_block *b,
                     const struct eval_heat_score *score)
{
    for (int32_t task = 0; task < run->n_tasks; task++)
        for (int32_t i = 0; eval_heat_is_on_grid(run->tasks[task]) && i < b->n_rows; i++) {
            struct eval_heat h;
            json_t *cells = json_array();
            if (!eval_heat_make(&h, run, task, b->rows[i].variant, score->measure))
                app_json_append(&cells, NULL);
            for (int32_t k = 0; k < h.n_depths * h.n_lengths; k++)
                if (h.n[k] > 0)
                    app_json_append(&cells, json_pack("[i,f,f,i]", h.length[k % h.n_lengths],
                                                      h.depth[k / h.n_lengths], h.value[k], h.n[k]));
            if (h.n_depths > 0)
                app_json_append(list, json_pack("{s:o,s:s,s:o,s:f,s:o,s:o,s:o,s:o}", "task",
                                                app_json_text(run->tasks[task]), "score",
                                                eval_measure_name(score->measure), "config",
                                                app_json_text(run->variants[b->rows[i].variant].id), "mean",
                                                h.mean, "wilson_lo", number(h.binary ? h.wilson.lo : NAN),
                                                "wilson_hi", number(h.binary ? h.wilson.hi : NAN),
                                                "unprotected", number(h.unprotected), "cells", cells));
            else
                json_decref(cells);
            eval_heat_clear(&h);
        }
}

static json_t *maps_json(const struct eval_run *run, const struct eval_block *b, const char *shown)
{
    json_t *list = json_array();
    for (int k = 0; k < EVAL_N_HEAT_SCORES; k++)
        if (eval_heat_shows(shown ? shown : "score", &eval_heat_scores[k]))
            add_maps(&list, run, b, &eval_heat_scores[k]);
    return list;
}

static json_t *block_json(const struct eval_tables *t, const struct eval_block *b, const char *shown)
{
    json_t *o = json_object(), *rows = json_array(), *gate = json_array();
    for (int32_t i = 0; i < b->n_rows; i++)
        app_json_append(&rows, row_json(t->run, b, &b->rows[i]));
    for (int32_t i = 0; i < b->n_strata; i++) {
        const struct eval_stratum *s = &b->strata[i];
        app_json_append(&gate,
                        json_pack("{s:o,s:i,s:b,s:I,s:o}", "task", app_json_text(t->run->tasks[s->task]), "N",
                                  s->n_target, "informative", (int)s->informative, "probes",
                                  (json_int_t)s->n_probes, "probe_mean", number(s->probes)));
    }
    app_json_set(&o, "mode", app_json_text(b->mode));
    app_json_set(&o, "N", b->n_target == EVAL_ALL_LENGTHS ? json_string("all") : json_integer(b->n_target));
    app_json_set(&o, "tasks", gate);
    app_json_set(&o, "rows", rows);
    app_json_set(&o, "curves", curves_json(t, b));
    if (b->n_target == EVAL_ALL_LENGTHS)
        app_json_set(&o, "maps", maps_json(t->run, b, shown));
    return o;
}

static json_t *versus_json(const struct eval_run *run, const struct eval_versus *v)
{
    json_t *o = json_object();
    app_json_set(&o, "mode", app_json_text(v->block->mode));
    app_json_set(&o, "N",
                 v->block->n_target == EVAL_ALL_LENGTHS ? json_string("all")
                                                        : json_integer(v->block->n_target));
    app_json_set(&o, "a", app_json_text(run->variants[v->a].policy));
    app_json_set(&o, "b", app_json_text(run->variants[v->b].policy));
    app_json_set(
        &o, "size",
        app_json_text(run->variants[v->a].full ? run->variants[v->b].size : run->variants[v->a].size));
    app_json_set(&o, "kv_type", app_json_text(run->variants[v->a].kv_type));
    app_json_set(&o, "n", json_integer((json_int_t)v->n));
    app_json_set(&o, "mean_a", number(v->mean_a));
    app_json_set(&o, "mean_b", number(v->mean_b));
    set_interval(&o, &v->delta);
    return o;
}

/* What a reader must know before believing the tables, a sentence or two each. */
static json_t *notes_json(const struct eval_tables *t)
{
    struct eval_doc notes = {0};
    json_t *list = json_array();
    eval_words_notes(&notes, t);
    for (const char *at = notes.text.s, *end; at && (end = strchr(at, '\n')); at = end + 1)
        app_json_append(&list, json_stringn(at, (size_t)(end - at)));
    if (notes.no_memory)
        app_json_append(&list, NULL);
    eval_doc_clear(&notes);
    return list;
}

static json_t *run_json(const struct eval_report *r, int32_t i)
{
    const struct eval_tables *t = &r->tables[i];
    const struct eval_run *run = t->run;
    const json_t *stand_ins = json_object_get(run->info, "stand_ins");
    json_t *o = json_object(), *folders = json_array(), *blocks = json_array(), *versus = json_array();
    for (int32_t k = 0; k < run->n_folders; k++)
        app_json_append(&folders, app_json_text(run->folders[k]));
    for (int32_t k = 0; k < t->n; k++)
        app_json_append(&blocks, block_json(t, &t->blocks[k], r->options->niah_score));
    for (int32_t k = 0; k < r->n_versus[i]; k++)
        app_json_append(&versus, versus_json(run, &r->versus[i][k]));
    app_json_set(&o, "model", app_json_text(run->model));
    app_json_set(&o, "folders", folders);
    app_json_set(&o, "answers", json_integer((json_int_t)run->n));
    app_json_set(&o, "bad", json_integer((json_int_t)run->n_bad));
    app_json_set(&o, "repeated", json_integer((json_int_t)run->n_twice));
    app_json_set(&o, "torn", json_integer((json_int_t)run->n_torn));
    app_json_set(&o, "too_long", json_integer((json_int_t)run->n_too_long));
    app_json_set(&o, "stand_ins", json_is_array(stand_ins) ? json_deep_copy(stand_ins) : json_array());
    app_json_set(&o, "notes", notes_json(t));
    app_json_set(&o, "blocks", blocks);
    if (r->names[0])
        app_json_set(&o, "compare", versus);
    else
        json_decref(versus);
    return o;
}

json_t *eval_report_json(const struct eval_report *r)
{
    json_t *o = json_object(), *runs = json_array();
    for (int32_t i = 0; i < r->runs.n; i++)
        app_json_append(&runs, run_json(r, i));
    app_json_set(&o, "v", json_integer(1));
    app_json_set(&o, "runs", runs);
    return o;
}
