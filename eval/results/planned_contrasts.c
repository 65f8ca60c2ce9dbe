/* SPDX-License-Identifier: MIT */
/* Primary contrasts of a run. */
#include "eval/results/planned_contrasts.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double level = 0.05;

/* The eviction rule, and any other setting outside the recipe, that contrasts apply to. It is the common one of all compressed methods
 * of a block, else none. */
static const char *rule_of(const struct eval_run *run, const struct eval_block *b)
{
    const char *rule = NULL;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_variant *v = &run->variants[b->rows[i].variant];
        if (!v->full && rule && strcmp(v->more, rule) != 0)
            return "";
        rule = v->full ? rule : v->more;
    }
    return rule ? rule : "";
}

/* Whether further settings of a variant have the value of a key. A rule of eviction that they do not name is the end of the prompt. */
static bool has_setting(const char *more, const char *key, const char *value)
{
    const char *found = more;
    while (strncmp(found, key, strlen(key)) != 0 && *found)
        found += strcspn(found, " ") + (found[strcspn(found, " ")] == ' ');
    if (!*found)
        return strcmp(key, "evict=") == 0 && strcmp(value, "end") == 0;
    found += strlen(key);
    return strcspn(found, " ") == strlen(value) && strncmp(found, value, strlen(value)) == 0;
}

/* Whether further settings of a variant are those of a side. usual: those of a side that names none. */
static bool has_rules(const char *more, const struct eval_contrast_side *side, const char *usual)
{
    char every[160];
    if (!side->evict && !side->every)
        return strcmp(more, usual) == 0;
    if (side->evict)
        return has_setting(more, "evict=", side->evict) &&
               (!side->every || has_setting(more, "evict_every=", side->every));
    snprintf(every, sizeof every, "evict_every=%.140s", side->every);
    return strcmp(more, every) == 0;
}

/* The row of a block that a contrast means by a side; -1 = there is none, -2 = out of memory. */
static int32_t find_variant(const struct eval_run *run, const struct eval_block *b,
                            const struct eval_contrast_side *side)
{
    char *canonical = eval_recipe_canonical(side->policy, NULL);
    const char *usual = rule_of(run, b);
    int32_t found = canonical ? -1 : -2;
    for (int32_t i = 0; found == -1 && i < b->n_rows; i++) {
        const struct eval_variant *v = &run->variants[b->rows[i].variant];
        if (strcmp(v->canonical, canonical) == 0 && (v->full || strcmp(v->size, side->size) == 0) &&
            strcmp(v->kv_type, side->kv_type) == 0 && strcmp(v->mode, b->mode) == 0 &&
            (v->full ? !*v->more : has_rules(v->more, side, usual)))
            found = b->rows[i].variant;
    }
    free(canonical);
    return found;
}

static const struct eval_block *find_block(const struct eval_tables *t, const struct eval_contrast *c)
{
    const int32_t wanted = c->n_target > 0 ? c->n_target : EVAL_ALL_LENGTHS;
    for (int32_t i = 0; i < t->n; i++)
        if (strcmp(t->blocks[i].mode, c->mode) == 0 && t->blocks[i].n_target == wanted)
            return &t->blocks[i];
    return NULL;
}

/* How likely chance parts the two methods so far. false: out of memory. */
static bool test(struct eval_planned_contrast *p, const struct eval_tables *t)
{
    const struct eval_versus *v = &p->versus;
    const struct eval_compared c = eval_versus_compared(v, t->run);
    struct eval_gather g;
    bool good = eval_gather(&g, &c);
    if (good) {
        const struct eval_pairs pairs = eval_gather_pairs(&g);
        char key[256];
        snprintf(key, sizeof key, "flips|%.200s|%llu", p->contrast.a.policy,
                 (unsigned long long)t->run->seed);
        struct eval_random r = eval_random_key(key);
        p->p = eval_flip_test(&pairs, &r);
        good = !isnan(p->p);
    }
    eval_gather_clear(&g);
    return good;
}

static bool measure(struct eval_planned_contrast *p, const struct eval_tables *t)
{
    const struct eval_block *block = find_block(t, &p->contrast);
    if (!block)
        return true;
    p->versus = (struct eval_versus){.block = block,
                                     .a = find_variant(t->run, block, &p->contrast.a),
                                     .b = find_variant(t->run, block, &p->contrast.b),
                                     .of = eval_contrast_of_kl(&p->contrast) ? EVAL_M_KL : EVAL_M_SCORE};
    if (p->versus.a < 0 || p->versus.b < 0)
        return p->versus.a > -2 && p->versus.b > -2;
    const bool good = eval_versus_measure(&p->versus, t);
    p->measured = p->versus.n > 0;
    return good && (!p->measured || test(p, t));
}

/* Corrects the probabilities for their number. false: out of memory. */
static bool correct(struct eval_planned_contrast *planned, int32_t n)
{
    double *p = malloc(((size_t)n + 1) * sizeof *p);
    for (int32_t i = 0; p && i < n; i++)
        p[i] = planned[i].p;
    const bool good = p && eval_holm(p, (size_t)n);
    for (int32_t i = 0; good && i < n; i++) {
        struct eval_planned_contrast *x = &planned[i];
        x->p_holm = p[i];
        const bool less = x->versus.delta.delta < 0, better = x->versus.of == EVAL_M_KL ? less : !less;
        const char *side = better ? "+" : "-";
        x->verdict = !x->measured || p[i] >= level ? "~" : side;
    }
    free(p);
    return good;
}

int eval_planned_contrasts_make(struct eval_planned_contrast **out, int32_t *n, const struct eval_tables *t)
{
    const json_t *lines = json_object_get(t->run->info, "contrasts");
    const size_t n_lines = json_array_size(lines);
    *n = 0;
    *out = calloc(n_lines + 1, sizeof **out);
    if (!*out)
        return eval_no_memory("the contrasts");
    for (size_t i = 0; i < n_lines; i++) {
        struct eval_planned_contrast *p = &(*out)[(*n)++];
        const char *line = json_string_value(json_array_get(lines, i));
        *p = (struct eval_planned_contrast){.p = 1};
        WNW_TRY(eval_contrast_read(&p->contrast, line ? line : "", "contrasts of run.json"));
        if (!measure(p, t))
            return eval_no_memory("the contrasts");
    }
    return correct(*out, *n) ? APP_OK : eval_no_memory("the contrasts");
}

void eval_planned_contrasts_free(struct eval_planned_contrast *planned, int32_t n)
{
    for (int32_t i = 0; planned && i < n; i++)
        eval_contrast_clear(&planned[i].contrast);
    free(planned);
}
