/* SPDX-License-Identifier: MIT */
/* Scores of a run as tables. */
#include "eval/results/table_impl.h"

#include "app/console.h"
#include "base/vectors.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is compared with what ---- */

/* How well a variant serves as the full cache of a protocol: its own protocol counts most, then 16-bit entries. */
static int worth_as_baseline(const struct eval_variant *c, const char *mode)
{
    if (!c->full || c->more[0]) /* with masked heads it is a method like others */
        return 0;
    return 1 + 4 * (strcmp(c->mode, mode) == 0) + 2 * (strcmp(c->kv_type, "f16") == 0) +
           (strcmp(c->kv_type, "f32") == 0);
}

static int32_t find_baseline(const struct eval_run *run, const char *mode)
{
    int32_t best = -1;
    for (int32_t i = 0; i < run->n_variants; i++)
        if (worth_as_baseline(&run->variants[i], mode) >
            (best >= 0 ? worth_as_baseline(&run->variants[best], mode) : 0))
            best = i;
    return best;
}

/* ---- Strata ---- */

/* Whether the full cache solves the task at this length, by samples that no method was measured on. */
static void read_gate(struct eval_stratum *s, const struct eval_run *run, const char *mode)
{
    const int32_t baseline = find_baseline(run, mode);
    double sum = 0.0;
    for (size_t i = 0; i < run->n_probes; i++) {
        const struct eval_result *r = &run->probes[i];
        if (r->task != s->task || r->n_target != s->n_target || r->variant != baseline)
            continue;
        sum += r->m[EVAL_M_SCORE];
        s->n_probes++;
    }
    s->probes = s->n_probes > 0 ? 100.0 * sum / (double)s->n_probes : NAN;
}

/* The full cache's scores on the samples that methods are compared on. */
static void read_own(struct eval_stratum *s, const struct eval_run *run, const char *mode)
{
    const int32_t baseline = find_baseline(run, mode);
    double sum = 0.0;
    for (size_t i = s->begin; i < s->end; i++) {
        const double score = run->results[i].m[EVAL_M_SCORE];
        if (run->results[i].variant != baseline || isnan(score))
            continue;
        sum += score;
        s->n_own++;
    }
    s->own = s->n_own > 0 ? 100.0 * sum / (double)s->n_own : NAN;
}

/* Probes decide where there are any, else the samples themselves. */
static bool is_solved(const struct eval_stratum *s, const struct eval_run *run)
{
    if (s->n_probes > 0)
        return s->probes >= EVAL_GATE_POINTS;
    return s->n_own < EVAL_OWN_GATE_ANSWERS || s->own >= EVAL_OWN_GATE_POINTS ||
           json_is_true(json_object_get(run->info, "closed_book"));
}

static bool has_scores(const struct eval_run *run, const struct eval_stratum *s)
{
    for (size_t i = s->begin; i < s->end; i++)
        if (!isnan(run->results[i].m[EVAL_M_SCORE]))
            return true;
    return false;
}

static bool in_mode(const struct eval_run *run, const struct eval_stratum *s, const char *mode)
{
    for (size_t i = s->begin; i < s->end; i++)
        if (strcmp(run->variants[run->results[i].variant].mode, mode) == 0)
            return true;
    return false;
}

/* Finds the strata of a protocol, at one length or at all. Returns false if memory runs out. */
static bool find_strata(struct eval_block *b, const struct eval_run *run, bool no_gate)
{
    for (size_t i = 0, end; i < run->n; i = end) {
        struct eval_stratum s = {
            .task = run->results[i].task, .n_target = run->results[i].n_target, .begin = i, .probes = NAN};
        for (end = i;
             end < run->n && run->results[end].task == s.task && run->results[end].n_target == s.n_target;)
            end++;
        s.end = end;
        if ((b->n_target != EVAL_ALL_LENGTHS && s.n_target != b->n_target) || !in_mode(run, &s, b->mode))
            continue;
        if (!eval_grow(&b->strata, (size_t)b->n_strata, sizeof *b->strata))
            return false;
        s.domain = eval_task_name_find(run->tasks[s.task])->domain;
        s.answer = eval_task_name_find(run->tasks[s.task])->answer;
        read_gate(&s, run, b->mode);
        read_own(&s, run, b->mode);
        s.scored = has_scores(run, &s);
        s.informative = s.scored && (no_gate || is_solved(&s, run));
        b->n_informative += s.informative;
        b->strata[b->n_strata++] = s;
    }
    return true;
}

/* ---- Rows ---- */

/* A row's cell of a stratum in the table of that length, which a table over all lengths repeats; NULL: there is none yet. Tables of a protocol
 * have the same rows. */
static const struct eval_cell *made_before(const struct eval_tables *t, const struct eval_block *b,
                                           const struct eval_stratum *s, int32_t row)
{
    for (const struct eval_block *o = t->blocks; o < b; o++)
        for (int32_t i = 0; strcmp(o->mode, b->mode) == 0 && i < o->n_strata; i++)
            if (o->strata[i].task == s->task && o->strata[i].n_target == s->n_target)
                return &o->rows[row].cell[i];
    return NULL;
}

static bool make_row(struct eval_row *row, const struct eval_block *b, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    const double asked = run->variants[row->variant].removed;
    struct eval_mean removed = {0};
    bool good = true;
    for (int32_t i = 0; good && i < b->n_strata; i++) {
        const struct eval_compared on = {run,          &b->strata[i], 1,           NULL,
                                         row->variant, b->baseline,   EVAL_M_SCORE};
        const struct eval_cell *before = made_before(t, b, &b->strata[i], (int32_t)(row - b->rows));
        if (before)
            row->cell[i] = *before;
        else
            good = eval_cell_make(&row->cell[i], &on, true);
        eval_mean_add(&removed, row->cell[i].m[EVAL_M_RATIO]);
    }
    row->removed = eval_mean_value(&removed);
    row->off_target = !isnan(asked) && !isnan(row->removed) && fabs(row->removed - asked) > 0.01;
    if (!eval_block_is_extra(b))
        return good && eval_means_make(row, b, run);
    /* The table of the only length is before it. */
    memcpy(row->group, (b - 1)->rows[row - b->rows].group, sizeof row->group);
    return good;
}

static bool make_rows(struct eval_block *b, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    eval_groups_find(b, run);
    b->baseline = find_baseline(run, b->mode);
    b->rows = calloc((size_t)run->n_variants + 1, sizeof *b->rows);
    for (int32_t i = 0; b->rows && i < run->n_variants; i++) {
        if (strcmp(run->variants[i].mode, b->mode) != 0 && i != b->baseline)
            continue;
        struct eval_row *row = &b->rows[b->n_rows++];
        row->variant = i;
        row->cell = calloc((size_t)b->n_strata + 1, sizeof *row->cell);
        if (!row->cell || !make_row(row, b, t))
            return false;
        if (row->macro.n > b->n_samples) {
            b->n_samples = row->macro.n;
            b->n_clusters = row->macro.n_clusters;
        }
    }
    return b->rows;
}

/* ---- Blocks ---- */

static bool add_block(struct eval_tables *t, const char *mode, int32_t n_target, bool one_length)
{
    if (!eval_grow(&t->blocks, (size_t)t->n, sizeof *t->blocks))
        return false;
    struct eval_block *b = &t->blocks[t->n++];
    *b = (struct eval_block){.mode = mode, .n_target = n_target, .one_length = one_length, .baseline = -1};
    return find_strata(b, t->run, t->no_gate) && make_rows(b, t);
}

/* The lengths of the results of a protocol, ascending, each once. NULL if memory runs out. */
static int32_t *find_lengths(int32_t *n, const struct eval_run *run, const char *mode)
{
    int32_t *all = malloc((run->n + 1) * sizeof *all);
    size_t found = 0;
    for (size_t i = 0; all && i < run->n; i++)
        if (strcmp(run->variants[run->results[i].variant].mode, mode) == 0 &&
            (found == 0 || all[found - 1] != run->results[i].n_target))
            all[found++] = run->results[i].n_target;
    if (all && found > 1)
        qsort(all, found, sizeof *all, wnw__ascending_i32);
    *n = 0;
    for (size_t i = 0; i < found; i++)
        if (*n == 0 || all[*n - 1] != all[i])
            all[(*n)++] = all[i];
    return all;
}

int eval_tables_make(struct eval_tables *t, const struct eval_run *run, bool no_gate)
{
    bool good = true;
    *t = (struct eval_tables){.run = run, .no_gate = no_gate};
    for (int32_t i = 0; good && i < run->n_variants; i++) {
        const char *mode = run->variants[i].mode;
        int32_t n_lengths = 0;
        if (i > 0 &&
            strcmp(run->variants[i - 1].mode, mode) == 0) /* variants are in order of their protocol */
            continue;
        int32_t *lengths = find_lengths(&n_lengths, run, mode);
        good = lengths;
        for (int32_t k = 0; good && k < n_lengths; k++)
            good = add_block(t, mode, lengths[k], n_lengths == 1);
        if (good && n_lengths > 0)
            good = add_block(t, mode, EVAL_ALL_LENGTHS, n_lengths == 1);
        free(lengths);
    }
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the tables of '%s'", run->folders[0]);
}

void eval_tables_clear(struct eval_tables *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        struct eval_block *b = &t->blocks[i];
        for (int32_t k = 0; k < b->n_rows; k++)
            free(b->rows[k].cell);
        free(b->rows);
        free(b->strata);
    }
    free(t->blocks);
    *t = (struct eval_tables){0};
}

const struct eval_block *eval_tables_all(const struct eval_tables *t, const char *mode)
{
    for (int32_t i = 0; i < t->n; i++)
        if (t->blocks[i].n_target == EVAL_ALL_LENGTHS && strcmp(t->blocks[i].mode, mode) == 0)
            return &t->blocks[i];
    return NULL;
}

bool eval_block_is_extra(const struct eval_block *b)
{
    return b->n_target == EVAL_ALL_LENGTHS && b->one_length;
}
