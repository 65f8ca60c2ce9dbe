/* SPDX-License-Identifier: MIT */
/* How a prediction is scored against references: one descriptor for each metric, scores from 0 to 1. */
#ifndef WNW_EVAL_METRIC_H
#define WNW_EVAL_METRIC_H

#include "eval/chars.h"

/* One prediction with what it is held against. Borrowed. */
struct eval_case {
    const struct eval_chars *pred;
    const struct eval_chars *refs; /* [n_refs], at least one */
    int32_t n_refs;
    const struct eval_chars *classes; /* [n_classes], for metrics that ask for them */
    int32_t n_classes;
};

/* What the scores against several references make. */
enum eval_over { EVAL_BEST, EVAL_MEAN };

struct eval_metric {
    const char *name;
    const char *alias; /* a shorter name, NULL = none */
    const char *about; /* one line */
    enum eval_over over;
    bool classes; /* needs all_classes */
    /* Score against one reference, which is of c->refs. false: out of memory. */
    bool (*score)(double *out, const struct eval_case *c, const struct eval_chars *ref);
};

/* Metric number i, NULL behind the last; the one with that name or alias, NULL = none. */
const struct eval_metric *eval_metric_get(int32_t i);
const struct eval_metric *eval_metric_find(const char *name);
/* Score of a case. false: out of memory. */
bool eval_metric_score(double *out, const struct eval_metric *m, const struct eval_case *c);

/* The normal form of LongBench: lower case, without punctuation, without the words a, an and the, white space
 * collapsed. false: out of memory. */
bool eval_metric_normal(struct eval_chars *out, const struct eval_chars *c);
/* 2PR/(P+R) of `same` out of n_pred and n_ref; 0 where nothing is the same. */
double eval_metric_f1(size_t same, size_t n_pred, size_t n_ref);

/* metric_match.c: what must occur in the prediction. */
extern const struct eval_metric eval_string_match_all, eval_string_match_part, eval_contains, eval_exact,
    eval_partial, eval_kv, eval_number, eval_qa_substring, eval_repeat_lines;
/* metric_longbench.c */
extern const struct eval_metric eval_qa_f1, eval_classification, eval_retrieval, eval_count, eval_code_sim;
/* metric_rouge.c: the package rouge of pltrdy; metric_words.c: words in common. */
extern const struct eval_metric eval_rouge_l, eval_rouge_pkg[9];
extern const struct eval_metric eval_rouge1_recall, eval_rouge1_recall_nostem, eval_wordset_recall;

#endif
