/* SPDX-License-Identifier: MIT */
/* winnow score: a metric on predictions from anywhere. */
#include "app/args.h"
#include "app/console.h"
#include "app/json.h"
#include "app/text.h"
#include "eval/args.h"
#include "eval/base/grow.h"
#include "eval/base/jsonl.h"
#include "eval/commands.h"
#include "eval/metrics/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Scores of the lines read so far. */
struct scores {
    double *at; /* [n], owned */
    size_t n;
};

static int unknown_metric(const char *name)
{
    struct app_text all = {0};
    const struct eval_metric *m;
    bool good = true;
    for (int32_t i = 0; (m = eval_metric_get(i)); i++)
        good = good && app_text_add(&all, ", ", i > 0 ? 2 : 0) &&
               app_text_add_utf8(&all, m->name, strlen(m->name));
    const char *near = eval_metric_nearest(name);
    const char *listed = good ? all.s : "";
    const int rc = near ? app_fail(APP_BAD_INPUT, "unknown metric '%s'; did you mean %s?", name, near)
                        : app_fail(APP_BAD_INPUT, "unknown metric '%s'; there are: %s", name, listed);
    free(all.s);
    return rc;
}

static int score_object(double *score, const struct eval_metric *m, const struct eval_jsonl *j,
                        const json_t *o)
{
    const json_t *pred, *refs, *classes = NULL;
    WNW_TRY(eval_jsonl_text(&pred, j, o, "pred"));
    WNW_TRY(eval_jsonl_texts(&refs, j, o, "refs", 1));
    if (m->classes)
        WNW_TRY(eval_jsonl_texts(&classes, j, o, "classes", 1));
    struct eval_case c;
    bool good = eval_case_open(&c, json_string_value(pred), json_string_length(pred), classes);
    for (size_t i = 0; good && i < json_array_size(refs); i++) {
        const json_t *ref = json_array_get(refs, i);
        good = eval_chars_append(&c.refs, &c.n_refs, json_string_value(ref), json_string_length(ref));
    }
    good = good && eval_metric_score(score, m, &c);
    eval_case_clear(&c);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for line %lld", (long long)j->number);
}

static int add_score(struct scores *s, const struct eval_metric *m, const struct eval_jsonl *j,
                     const json_t *o)
{
    double score;
    WNW_TRY(score_object(&score, m, j, o));
    if (!eval_grow(&s->at, s->n, sizeof *s->at))
        return app_fail(APP_FAILED, "out of memory");
    s->at[s->n++] = score;
    return APP_OK;
}

static int score_file(struct scores *s, const struct eval_metric *m, const char *path)
{
    struct eval_jsonl j;
    json_t *o = NULL;
    int rc = eval_jsonl_open(&j, path);
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &o)) == APP_OK && o) {
        rc = add_score(s, m, &j, o);
        json_decref(o);
        o = NULL;
    }
    if (rc == APP_OK && s->n == 0)
        rc = app_fail(APP_BAD_INPUT, "'%s' is empty; it has no predictions", path);
    eval_jsonl_close(&j);
    return rc;
}

static int print_text(const struct scores *s, double mean)
{
    for (size_t i = 0; i < s->n; i++)
        printf("%.9g\n", s->at[i]);
    printf("mean %.9g\n", mean);
    return app_finish_stdout();
}

static int print_json(const struct scores *s, const char *metric, double mean)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n && app_json_append(&list, json_real(s->at[i])); i++)
        ;
    return app_print_json(json_pack("{s:s, s:I, s:f, s:o}", "metric", metric, "n", (json_int_t)s->n, "mean",
                                    mean, "scores", list));
}

static int print_scores(const struct scores *s, const char *metric, bool json)
{
    double sum = 0.0;
    for (size_t i = 0; i < s->n; i++)
        sum += s->at[i];
    const double mean = sum / (double)s->n;
    return json ? print_json(s, metric, mean) : print_text(s, mean);
}

int eval_run_score(const struct app_args *app)
{
    const struct eval_args *args = (const struct eval_args *)app;
    struct scores s = {0};
    if (!args->metric)
        return app_fail(APP_BAD_INPUT, "no metric; name one with --metric");
    if (!args->input)
        return app_fail(APP_BAD_INPUT, "no predictions; name a JSONL file with -i");
    const struct eval_metric *m = eval_metric_find(args->metric);
    if (!m)
        return unknown_metric(args->metric);
    /* Scores are printed after all lines were checked, so that an error is one line and nothing else. */
    int rc = score_file(&s, m, args->input);
    if (rc == APP_OK)
        rc = print_scores(&s, m->name, app->json);
    free(s.at);
    return rc;
}
