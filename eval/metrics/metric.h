/* SPDX-License-Identifier: MIT */
/* How a prediction is scored against references. Each metric has one descriptor; scores are from 0 to 1. */
#ifndef WNW_EVAL_METRIC_H
#define WNW_EVAL_METRIC_H

#include "eval/base/chars.h"

#include <jansson.h>

/* One prediction and what it is compared with. */
struct eval_case {
    struct eval_chars pred;  /* owned, like all below */
    struct eval_chars *refs; /* [n_refs], at least one */
    int32_t n_refs;
    struct eval_chars *classes; /* [n_classes], for metrics that ask for them */
    int32_t n_classes;
};
/* Begins a case with a prediction; classes is an array of texts or NULL. References are added with eval_chars_append. Returns false
 * if memory runs out; the caller clears in any case. */
bool eval_case_open(struct eval_case *c, const char *pred, size_t len, const json_t *classes);
void eval_case_clear(struct eval_case *c);

/* How the scores against several references are combined. */
enum eval_over { EVAL_BEST, EVAL_MEAN };

/* Writes the score against one reference, an element of c->refs; `variant` is the metric's own. Returns false if memory runs
 * out. */
typedef bool eval_scorer(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant);

struct eval_metric {
    const char *name;
    const char *alias; /* a shorter name, NULL = none */
    const char *about; /* one line */
    enum eval_over over;
    bool classes; /* needs all_classes */
    eval_scorer *score;
    int variant; /* of those of one scorer */
};

/* Metric number i, NULL after the last; the metric with a name or alias, NULL if there is none. */
const struct eval_metric *eval_metric_get(int32_t i);
const struct eval_metric *eval_metric_find(const char *name);
/* The name of a metric nearest to a mistyped one, NULL if none is near. */
const char *eval_metric_nearest(const char *name);
/* Writes the score of a case. Returns false if memory runs out. */
bool eval_metric_score(double *out, const struct eval_metric *m, const struct eval_case *c);

/* ---- Scorers and their variants ---- */

/* Changes a text in place to what is compared. */
typedef void eval_change(struct eval_chars *c);
/* The normal form of LongBench: lower case, without punctuation, without the words a, an and the, white space
 * collapsed. */
eval_change eval_metric_normal;

/* metric_match.c */
enum { EVAL_AS_IT_IS, EVAL_LOWER_CASE, EVAL_PLAIN_WORDS, EVAL_NORMAL_FORM };
enum { EVAL_ANYWHERE, EVAL_IN_PLACE };
eval_scorer eval_score_contains, eval_score_partial, eval_score_number, eval_score_lines;
/* metric_longbench.c */
eval_scorer eval_score_classes, eval_score_retrieval, eval_score_count, eval_score_code;
/* metric_json.c */
enum { EVAL_CALL_RIGHT, EVAL_CALL_VALID };
eval_scorer eval_score_call;
/* metric_words.c */
enum { EVAL_NORMAL_F1, EVAL_STEM_RECALL, EVAL_WORD_RECALL, EVAL_SET_RECALL };
eval_scorer eval_score_words;
/* metric_rouge.c: the package `rouge` by pltrdy. The first is F of ROUGE-L. Variants of the second, which takes the prediction as
 * reference: 3 times 0 for ROUGE-1, 1 for ROUGE-2, 2 for ROUGE-L, and 0 for precision, 1 for recall, 2 for F. */
eval_scorer eval_score_rouge_l, eval_score_rouge_pkg;

#endif
