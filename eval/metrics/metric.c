/* SPDX-License-Identifier: MIT */
/* The list of metrics, and what they share. */
#include "eval/metrics/metric.h"

#include "base/nearest.h"

#include <string.h>

static const struct eval_metric *const metrics[] = {&eval_string_match_all,
                                                    &eval_string_match_part,
                                                    &eval_contains,
                                                    &eval_exact,
                                                    &eval_partial,
                                                    &eval_qa_f1,
                                                    &eval_rouge_l,
                                                    &eval_classification,
                                                    &eval_retrieval,
                                                    &eval_count,
                                                    &eval_code_sim,
                                                    &eval_rouge1_recall,
                                                    &eval_rouge1_recall_nostem,
                                                    &eval_wordset_recall,
                                                    &eval_rouge_pkg[0],
                                                    &eval_rouge_pkg[1],
                                                    &eval_rouge_pkg[2],
                                                    &eval_rouge_pkg[3],
                                                    &eval_rouge_pkg[4],
                                                    &eval_rouge_pkg[5],
                                                    &eval_rouge_pkg[6],
                                                    &eval_rouge_pkg[7],
                                                    &eval_rouge_pkg[8],
                                                    &eval_kv,
                                                    &eval_number,
                                                    &eval_qa_substring,
                                                    &eval_repeat_lines};

const struct eval_metric *eval_metric_get(int32_t i)
{
    return i >= 0 && i < (int32_t)(sizeof metrics / sizeof *metrics) ? metrics[i] : NULL;
}

const struct eval_metric *eval_metric_find(const char *name)
{
    const struct eval_metric *m;
    for (int32_t i = 0; (m = eval_metric_get(i)); i++)
        if (strcmp(m->name, name) == 0 || (m->alias && strcmp(m->alias, name) == 0))
            return m;
    return NULL;
}

const char *eval_metric_nearest(const char *name)
{
    enum { N = sizeof metrics / sizeof *metrics };
    const char *names[N + 1] = {NULL};
    for (int i = 0; i < N; i++)
        names[i] = metrics[i]->name;
    return wnw__nearest(name, names);
}

bool eval_metric_score(double *out, const struct eval_metric *m, const struct eval_case *c)
{
    double best = 0.0, sum = 0.0;
    for (int32_t i = 0; i < c->n_refs; i++) {
        double score;
        if (!m->score(&score, c, &c->refs[i]))
            return false;
        best = score > best ? score : best;
        sum += score;
    }
    *out = m->over == EVAL_BEST ? best : c->n_refs > 0 ? sum / c->n_refs : 0.0;
    return true;
}

static bool is_article(const uint32_t *word, size_t n)
{
    return (n == 1 && word[0] == 'a') || (n == 2 && word[0] == 'a' && word[1] == 'n') ||
           (n == 3 && word[0] == 't' && word[1] == 'h' && word[2] == 'e');
}

bool eval_metric_normal(struct eval_chars *out, const struct eval_chars *c)
{
    if (!eval_chars_copy(out, c->at, c->n))
        return false;
    eval_chars_lower(out);
    eval_chars_drop_punctuation(out);
    for (size_t i = 0; i < out->n;) {
        size_t n = 0;
        while (i + n < out->n && eval_is_alnum(out->at[i + n]))
            n++;
        const bool article = is_article(out->at + i, n);
        for (size_t k = i; article && k < i + n; k++)
            out->at[k] = ' ';
        i += n + 1;
    }
    eval_chars_collapse(out);
    return true;
}

double eval_metric_f1(size_t same, size_t n_pred, size_t n_ref)
{
    if (same == 0)
        return 0.0;
    const double p = (double)same / (double)n_pred, r = (double)same / (double)n_ref;
    return 2 * p * r / (p + r);
}
