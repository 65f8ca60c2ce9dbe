/* SPDX-License-Identifier: MIT */
/* From the text that a model generated to its scores. */
#include "eval/tasks/grade.h"

#include "app/console.h"
#include "eval/metrics/metric.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Metrics that only look for references in the prediction: more text cannot lower their score. */
static const char *const growing[] = {
    "string_match_all", "string_match_part", "contains", "exact", "kv", NULL};
/* Metrics that are computed besides the first of these, which a sample may name as its own. */
static const char *const beside_match[] = {"partial", NULL};
static const char *const beside_exact[] = {"partial", "contains", NULL};
static const char *const beside_needle[] = {"partial",
                                            "wordset_recall",
                                            "rouge1_recall",
                                            "rouge_pkg_1_p",
                                            "rouge_pkg_1_r",
                                            "rouge_pkg_1_f",
                                            "rouge_pkg_2_p",
                                            "rouge_pkg_2_r",
                                            "rouge_pkg_2_f",
                                            "rouge_pkg_l_p",
                                            "rouge_pkg_l_r",
                                            "rouge_pkg_l_f",
                                            NULL};
/* Those that compare with the whole hidden sentence and not with the answer alone: the list's end. */
static const char *const *const of_sentence = beside_needle + 2;

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static const char *const *metrics_with(const struct eval_sample *s)
{
    static const char *const none[] = {NULL};
    if (strcmp(s->metric, "contains") == 0)
        return beside_needle;
    if (strcmp(s->metric, "exact") == 0)
        return beside_exact;
    return is_one_of(s->metric, growing) ? beside_match : none;
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
    else if (is_one_of(s->metric, growing)) {
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
    bool sentence = false;
    /* The metrics that take the sentence stand at the list's end. */
    for (const char *const *m = metrics_with(s); good && *m; m++) {
        double score = 0;
        if (is_one_of(*m, of_sentence) && !sentence)
            good = sentence = use_sentence(&c, s);
        good =
            good && score_case(&score, *m, &c) && json_object_set_new(g->scores, *m, json_real(score)) == 0;
    }
    eval_case_clear(&c);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the scores of %s", s->task);
}

bool eval_grade_is_final(const struct eval_sample *s, int32_t turn, const struct app_text *pred)
{
    struct eval_case c;
    double score = 0;
    const char *const *others = metrics_with(s);
    if (!is_one_of(s->metric, growing) || s->turns[turn].n_refs == 0)
        return false;
    bool final = open_case(&c, s, &s->turns[turn], pred) && score_case(&score, s->metric, &c) && score >= 1;
    /* What stands next to the score must not change either. What compares with a whole sentence always may. */
    for (; final && *others; others++)
        final = !is_one_of(*others, of_sentence) && score_case(&score, *others, &c) && score >= 1;
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
