/* SPDX-License-Identifier: MIT */
/* How a prediction is scored against references. Each metric has one descriptor; scores are from 0 to 1. */
#ifndef WNW_EVAL_METRIC_H
#define WNW_EVAL_METRIC_H

#include "eval/base/chars.h"

/* One prediction and what it is compared with. All texts are borrowed. */
struct eval_case {
    const struct eval_chars *pred;
    const struct eval_chars *refs; /* [n_refs], at least one */
    int32_t n_refs;
    const struct eval_chars *classes; /* [n_classes], for metrics that ask for them */
    int32_t n_classes;
};

/* How the scores against several references are combined. */
enum eval_over { EVAL_BEST, EVAL_MEAN };

struct eval_metric {
    const char *name;
    const char *alias; /* a shorter name, NULL = none */
    const char *about; /* one line */
    enum eval_over over;
    bool classes; /* needs all_classes */
    /* Writes the score against one reference, an element of c->refs. Returns false if memory runs out. */
    bool (*score)(double *out, const struct eval_case *c, const struct eval_chars *ref);
};

/* Metric number i, NULL after the last; the metric with a name or alias, NULL if there is none. */
const struct eval_metric *eval_metric_get(int32_t i);
const struct eval_metric *eval_metric_find(const char *name);
/* The name of a metric nearest to a mistyped one, NULL if none is near. */
const char *eval_metric_nearest(const char *name);
/* Writes the score of a case. Returns false if memory runs out. */
bool eval_metric_score(double *out, const struct eval_metric *m, const struct eval_case *c);

/* The normal form of LongBench: lower case, without punctuation, without the words a, an and the, white space
 * collapsed. false: out of memory. */
bool eval_metric_normal(struct eval_chars *out, const struct eval_chars *c);
/* 2PR/(P+R) with P = same / n_pred and R = same / n_ref; 0 if `same` is 0. */
double eval_metric_f1(size_t same, size_t n_pred, size_t n_ref);

/* metric_match.c: metrics that look for the reference in the prediction. */
extern const struct eval_metric eval_string_match_all, eval_string_match_part, eval_contains, eval_exact,
    eval_partial, eval_kv, eval_number, eval_qa_substring, eval_repeat_lines;
/* metric_longbench.c */
extern const struct eval_metric eval_qa_f1, eval_classification, eval_retrieval, eval_count, eval_code_sim;
/* metric_rouge.c: the package `rouge` by pltrdy; metric_words.c: words in common. */
extern const struct eval_metric eval_rouge_l, eval_rouge_pkg[9];
extern const struct eval_metric eval_rouge1_recall, eval_rouge1_recall_nostem, eval_wordset_recall;

#endif
