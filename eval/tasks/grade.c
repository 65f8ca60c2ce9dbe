/* SPDX-License-Identifier: MIT */
/* From the text that a model generated to its scores. */
#include "eval/tasks/grade.h"

#include "app/console.h"
#include "eval/base/record.h"
#include "eval/metrics/metric.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Metrics that only look for references in the prediction: more text cannot lower their score. */
static const char *const growing[] = {
    "string_match_all", "string_match_part", "contains", "exact", "kv", NULL};

/* Whether the metric only looks for references. */
static bool is_growing(const struct eval_sample *s)
{
    const char *const *m = growing;
    while (*m && strcmp(*m, s->metric) != 0)
        m++;
    return *m;
}

/* The last measure that is computed in addition to the sample's own; the first is EVAL_M_PARTIAL. */
static int last_beside(const struct eval_sample *s)
{
    if (strcmp(s->metric, "contains") == 0)
        return EVAL_M_FGT - 1;
    if (strcmp(s->metric, "exact") == 0)
        return EVAL_M_CONTAINS;
    if (is_growing(s))
        return EVAL_M_PARTIAL;
    return EVAL_M_PARTIAL - 1;
}

/* Whether a measure compares with the whole hidden sentence and not with the answer alone. */
static bool is_of_sentence(int measure)
{
    return measure >= EVAL_M_ROUGE1;
}

/* ---- Trimming ---- */

static void keep_range(struct app_text *t, size_t from, size_t to)
{
    if (!t->s)
        return;
    memmove(t->s, t->s + from, to - from);
    t->len = to - from;
    t->s[t->len] = '\0';
}

static void strip(struct app_text *t)
{
    size_t from = 0, to = t->len;
    while (from < to && isspace((unsigned char)t->s[from]))
        from++;
    while (to > from && isspace((unsigned char)t->s[to - 1]))
        to--;
    keep_range(t, from, to);
}

static void keep_first_line(struct app_text *t)
{
    size_t from = 0;
    while (from < t->len && t->s[from] == '\n')
        from++;
    const size_t n = t->s ? strcspn(t->s + from, "\n") : 0;
    keep_range(t, from, from + n);
}

bool eval_grade_trim(struct app_text *pred, const struct eval_sample *s)
{
    if (json_is_true(json_object_get(s->meta, "first_line")))
        keep_first_line(pred);
    else if (is_growing(s)) {
        strip(pred);
        for (size_t i = 0; i < pred->len; i++)
            if ((unsigned char)pred->s[i] < 0x20)
                pred->s[i] = '\n';
        strip(pred);
    }
    return app_text_add(pred, "", 0);
}

/* ---- Scoring ---- */

static bool open_case(struct eval_case *c, const struct eval_sample *s, const struct eval_turn *turn,
                      const struct app_text *pred)
{
    bool good = eval_case_open(c, pred->s ? pred->s : "", pred->len, json_object_get(s->meta, "classes"));
    for (int32_t i = 0; good && i < turn->n_refs; i++)
        good = eval_chars_append(&c->refs, &c->n_refs, turn->refs[i], strlen(turn->refs[i]));
    return good;
}

/* Puts the sentence that holds the evidence in the place of the references. */
static bool use_sentence(struct eval_case *c, const struct eval_sample *s)
{
    eval_chars_free_list(c->refs, c->n_refs);
    c->refs = NULL;
    c->n_refs = 0;
    return s->n_spans == 0 || eval_chars_append(&c->refs, &c->n_refs, s->context.s + s->spans[0].from,
                                                s->spans[0].to - s->spans[0].from);
}

static bool score_case(double *score, const char *metric, const struct eval_case *c)
{
    const struct eval_metric *m = eval_metric_find(metric);
    *score = 0;
    return m && eval_metric_score(score, m, c);
}

int eval_grade_turn(struct eval_grade *g, const struct eval_sample *s, int32_t turn,
                    const struct app_text *pred)
{
    struct eval_case c;
    *g = (struct eval_grade){.scores = json_object()};
    bool good = open_case(&c, s, &s->turns[turn], pred) && g->scores && score_case(&g->score, s->metric, &c);
    for (int m = EVAL_M_PARTIAL; good && m <= last_beside(s); m++) {
        const char *name = eval_field_name(m);
        double score = 0;
        if (strcmp(name, s->metric) == 0)
            continue;
        if (m == EVAL_M_ROUGE1) /* those that take the sentence come last */
            good = use_sentence(&c, s);
        good = good && score_case(&score, name, &c) &&
               json_object_set_new(g->scores, name, json_real(score)) == 0;
    }
    eval_case_clear(&c);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the scores of %s", s->task);
}

bool eval_grade_is_final(const struct eval_sample *s, int32_t turn, const struct app_text *pred)
{
    struct eval_case c;
    double score = 0;
    if (!is_growing(s) || s->turns[turn].n_refs == 0)
        return false;
    bool final = open_case(&c, s, &s->turns[turn], pred) && score_case(&score, s->metric, &c) && score >= 1;
    /* The additional measures must not change either. Those that compare with a whole sentence always may. */
    for (int m = EVAL_M_PARTIAL; final && m <= last_beside(s); m++)
        final = !is_of_sentence(m) && score_case(&score, eval_field_name(m), &c) && score >= 1;
    eval_case_clear(&c);
    return final;
}

bool eval_refs_text(struct app_text *out, const struct eval_turn *turn, const char *after)
{
    const size_t n = after ? strlen(after) : 0;
    bool good = n > 0 && isspace((unsigned char)after[n - 1]) ? true : app_text_add(out, " ", 1);
    for (int32_t i = 0; good && i < turn->n_refs; i++)
        good =
            app_text_add(out, ", ", i > 0 ? 2 : 0) && app_text_add(out, turn->refs[i], strlen(turn->refs[i]));
    return good;
}
