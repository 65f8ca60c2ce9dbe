/* SPDX-License-Identifier: MIT */
/* The list of metrics, and what they share. */
#include "eval/metrics/metric.h"

#include "base/strings.h"

#include <string.h>

static const struct eval_metric metrics[] = {
    {"string_match_all", "all",
     "RULER: share of the references that occur in the prediction, in any case of letters", EVAL_MEAN, false,
     eval_score_contains, EVAL_LOWER_CASE},
    {"string_match_part", "part", "RULER's questions: 1 where any reference occurs in the prediction",
     EVAL_BEST, false, eval_score_contains, EVAL_LOWER_CASE},
    {"contains", NULL, "needle: 1 where the reference occurs, punctuation and case of letters aside",
     EVAL_BEST, false, eval_score_contains, EVAL_PLAIN_WORDS},
    {"exact", NULL, "passkey: 1 where the normalised reference occurs in the normalised prediction",
     EVAL_BEST, false, eval_score_contains, EVAL_NORMAL_FORM},
    {"partial", NULL, "passkey: longest run of the reference that occurs in the prediction, as a share of it",
     EVAL_BEST, false, eval_score_partial, 0},
    {"qa_f1", NULL, "LongBench's questions: F1 of the normalised words", EVAL_BEST, false, eval_score_words,
     EVAL_NORMAL_F1},
    {"rouge_l", NULL, "LongBench's summaries, package rouge: F of ROUGE-L over sentences", EVAL_BEST, false,
     eval_score_rouge_l, 0},
    {"classification", NULL,
     "LongBench's trec: 1 over the classes that the prediction names, 0 where it lacks the right one",
     EVAL_BEST, true, eval_score_classes, 0},
    {"retrieval", NULL,
     "LongBench's passage_retrieval: share of the prediction's numbers that are the paragraph's", EVAL_BEST,
     false, eval_score_retrieval, 0},
    {"count", NULL, "LongBench's passage_count: share of the prediction's numbers that are the reference",
     EVAL_BEST, false, eval_score_count, 0},
    {"code_sim", NULL, "LongBench's code: similarity of the first line of code, by insertions and deletions",
     EVAL_BEST, false, eval_score_code, 0},
    {"rouge1_recall", NULL, "needle, package rouge-score: recall of the reference's stemmed words", EVAL_BEST,
     false, eval_score_words, EVAL_STEM_RECALL},
    {"rouge1_recall_nostem", NULL, "the same without stemming", EVAL_BEST, false, eval_score_words,
     EVAL_WORD_RECALL},
    {"wordset_recall", NULL, "needle: share of the reference's distinct words, punctuation kept", EVAL_BEST,
     false, eval_score_words, EVAL_SET_RECALL},
    {"rouge_pkg_1_p", NULL, "needle, package rouge with the needle as hypothesis: precision of words",
     EVAL_BEST, false, eval_score_rouge_pkg, 0},
    {"rouge_pkg_1_r", NULL, "the same: recall of words", EVAL_BEST, false, eval_score_rouge_pkg, 1},
    {"rouge_pkg_1_f", NULL, "the same: F of words", EVAL_BEST, false, eval_score_rouge_pkg, 2},
    {"rouge_pkg_2_p", NULL, "the same: precision of pairs of words", EVAL_BEST, false, eval_score_rouge_pkg,
     3},
    {"rouge_pkg_2_r", NULL, "the same: recall of pairs of words", EVAL_BEST, false, eval_score_rouge_pkg, 4},
    {"rouge_pkg_2_f", NULL, "the same: F of pairs of words", EVAL_BEST, false, eval_score_rouge_pkg, 5},
    {"rouge_pkg_l_p", NULL, "the same: precision of ROUGE-L", EVAL_BEST, false, eval_score_rouge_pkg, 6},
    {"rouge_pkg_l_r", NULL, "the same: recall of ROUGE-L", EVAL_BEST, false, eval_score_rouge_pkg, 7},
    {"rouge_pkg_l_f", "rouge_pkg", "the same: F of ROUGE-L", EVAL_BEST, false, eval_score_rouge_pkg, 8},
    {"kv", NULL, "SCBench: 1 where the reference occurs in the prediction as it is written", EVAL_BEST, false,
     eval_score_contains, EVAL_AS_IT_IS},
    {"number", NULL, "SCBench's numbers: 1 where the first number of the prediction is the reference",
     EVAL_BEST, false, eval_score_number, 0},
    {"qa_substring", NULL, "SCBench's questions: 1 where any reference occurs, in any case of letters",
     EVAL_BEST, false, eval_score_contains, EVAL_LOWER_CASE},
    {"repeat_lines", NULL,
     "share of the reference's lines that the prediction has, white space at their ends aside", EVAL_BEST,
     false, eval_score_lines, EVAL_ANYWHERE},
    {"leading_lines", NULL,
     "share of the reference's lines before the first that the prediction does not have in its place, white "
     "space at their ends and empty lines aside",
     EVAL_BEST, false, eval_score_lines, EVAL_IN_PLACE},
    {"json_call", NULL,
     "share of a call's name and arguments that are right, of the first JSON object of the prediction; 0 "
     "where it is "
     "no call",
     EVAL_BEST, false, eval_score_call, EVAL_CALL_RIGHT},
    {"json_valid", NULL, "1 where the first JSON object of the prediction is a call of a tool, whichever",
     EVAL_BEST, false, eval_score_call, EVAL_CALL_VALID},
};
enum { N_METRICS = sizeof metrics / sizeof *metrics };

const struct eval_metric *eval_metric_get(int32_t i)
{
    return i >= 0 && i < N_METRICS ? &metrics[i] : NULL;
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
    const char *names[N_METRICS + 1] = {NULL};
    for (int i = 0; i < N_METRICS; i++)
        names[i] = metrics[i].name;
    return wnw__nearest(name, names);
}

bool eval_case_open(struct eval_case *c, const char *pred, size_t len, const json_t *classes)
{
    *c = (struct eval_case){0};
    bool good = eval_chars_from(&c->pred, pred, len);
    for (size_t i = 0; good && i < json_array_size(classes); i++) {
        const json_t *text = json_array_get(classes, i);
        good =
            eval_chars_append(&c->classes, &c->n_classes, json_string_value(text), json_string_length(text));
    }
    return good;
}

void eval_case_clear(struct eval_case *c)
{
    eval_chars_free(&c->pred);
    eval_chars_free_list(c->refs, c->n_refs);
    eval_chars_free_list(c->classes, c->n_classes);
    *c = (struct eval_case){0};
}

bool eval_metric_score(double *out, const struct eval_metric *m, const struct eval_case *c)
{
    double best = 0.0, sum = 0.0;
    for (int32_t i = 0; i < c->n_refs; i++) {
        double score;
        if (!m->score(&score, c, &c->refs[i], m->variant))
            return false;
        best = score > best ? score : best;
        sum += score;
    }
    const double mean = c->n_refs > 0 ? sum / c->n_refs : 0.0;
    *out = m->over == EVAL_BEST ? best : mean;
    return true;
}
