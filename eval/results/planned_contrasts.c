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

/* Whether further settings of a variant are those of a rule of eviction. Those of the end of the prompt do not name it. */
static bool has_evict(const char *more, const char *evict)
{
    static const char key[] = "evict=";
    const char *found = more;
    while (strncmp(found, key, sizeof key - 1) != 0 && *found)
        found += strcspn(found, " ") + (found[strcspn(found, " ")] == ' ');
    if (!*found)
        return strcmp(evict, "end") == 0;
    found += sizeof key - 1;
    return strcspn(found, " ") == strlen(evict) && strncmp(found, evict, strlen(evict)) == 0;
}

/* The row of a block that a contrast means by a recipe under a rule of eviction (NULL: the usual one); -1 = there is none. */
static int32_t find_variant(const struct eval_run *run, const struct eval_block *b,
                            const struct eval_contrast *c, const char *canonical, const char *evict)
{
    const char *rule = rule_of(run, b);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const struct eval_variant *v = &run->variants[b->rows[i].variant];
        const bool named = evict && !v->full;
        const char *usual = v->full ? "" : rule;
        if (strcmp(v->canonical, canonical) == 0 && (v->full || strcmp(v->size, c->size) == 0) &&
            strcmp(v->kv_type, c->kv_type) == 0 && strcmp(v->mode, c->mode) == 0 &&
            (named ? has_evict(v->more, evict) : strcmp(v->more, usual) == 0))
            return b->rows[i].variant;
    }
    return -1;
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
    const struct eval_compared c = eval_group_compared(t->run, v->block, &v->block->groups[0], v->a, v->b);
    struct eval_gather g;
    bool good = eval_gather(&g, &c);
    if (good) {
        const struct eval_pairs pairs = eval_gather_pairs(&g);
        char key[256];
        snprintf(key, sizeof key, "flips|%.200s|%llu", p->contrast.a, (unsigned long long)t->run->seed);
        struct eval_random r = eval_random_key(key);
        p->p = eval_flip_test(&pairs, &r);
        good = !isnan(p->p);
    }
    eval_gather_clear(&g);
    return good;
}

static bool measure(struct eval_planned_contrast *p, const struct eval_tables *t)
{
    char *a = eval_recipe_canonical(p->contrast.a, NULL), *b = eval_recipe_canonical(p->contrast.b, NULL);
    const struct eval_block *block = find_block(t, &p->contrast);
    bool good = a && b;
    if (good && block) {
        p->versus =
            (struct eval_versus){.block = block,
                                 .a = find_variant(t->run, block, &p->contrast, a, p->contrast.evict_a),
                                 .b = find_variant(t->run, block, &p->contrast, b, p->contrast.evict_b)};
        p->measured = p->versus.a >= 0 && p->versus.b >= 0;
    }
    if (good && p->measured) {
        good = eval_versus_measure(&p->versus, t);
        p->measured = p->versus.n > 0;
        good = good && (!p->measured || test(p, t));
    }
    free(a);
    free(b);
    return good;
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
        const char *side = x->versus.delta.delta > 0 ? "+" : "-";
        x->verdict = !x->measured || p[i] >= level ? "~" : side;
    }
    free(p);
    return good;
}

int eval_planned_contrasts_make(struct eval_planned_contrast **out, int32_t *n, const struct eval_tables *t)
{
    const json_t *lines = json_object_get(t->run->info, "contrasts");
    const size_t n_lines = json_array_size(lines);
    int rc = APP_OK;
    *n = 0;
    *out = calloc(n_lines + 1, sizeof **out);
    for (size_t i = 0; *out && rc == APP_OK && i < n_lines; i++) {
        struct eval_planned_contrast *p = &(*out)[(*n)++];
        const char *line = json_string_value(json_array_get(lines, i));
        *p = (struct eval_planned_contrast){.p = 1};
        rc = eval_contrast_read(&p->contrast, line ? line : "", "contrasts of run.json");
        if (rc == APP_OK && !measure(p, t))
            rc = eval_no_memory("the contrasts");
    }
    if (rc == APP_OK && !(*out && correct(*out, *n)))
        rc = eval_no_memory("the contrasts");
    return rc;
}

void eval_planned_contrasts_free(struct eval_planned_contrast *planned, int32_t n)
{
    for (int32_t i = 0; planned && i < n; i++)
        eval_contrast_clear(&planned[i].contrast);
    free(planned);
}
