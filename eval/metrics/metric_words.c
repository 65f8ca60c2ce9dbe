/* SPDX-License-Identifier: MIT */
/* Recall of the reference's words: ROUGE-1 as Google's package counts it, and sets of words. */
#include "eval/metrics/metric.h"
#include "eval/metrics/porter.h"
#include "eval/metrics/words.h"

/* Splits c into sorted words of a to z and 0 to 9 in lower case; stem: words of more than 3 letters become
 * their stems. The words point into c, which is changed. Returns false if memory runs out. */
static bool rouge_words(struct eval_words *w, struct eval_chars *c, bool stem)
{
    eval_chars_lower(c);
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i] >= 0x80 || !eval_is_alnum(c->at[i]))
            c->at[i] = ' ';
    if (!eval_words_split(w, c))
        return false;
    for (size_t i = 0; stem && i < w->n; i++)
        if (w->at[i].n > 3)
            w->at[i].n = eval_porter_stem(c->at + (w->at[i].at - c->at), w->at[i].n);
    eval_words_sort(w);
    return true;
}

static bool rouge1(double *out, const struct eval_case *c, const struct eval_chars *ref, bool stem)
{
    struct eval_chars p, r = {0};
    struct eval_words pw = {0}, rw = {0};
    bool good = eval_chars_copy(&p, c->pred->at, c->pred->n);
    good = good && eval_chars_copy(&r, ref->at, ref->n);
    good = good && rouge_words(&pw, &p, stem) && rouge_words(&rw, &r, stem);
    if (good)
        *out = rw.n > 0 ? (double)eval_words_common(&pw, &rw) / (double)rw.n : 0.0;
    eval_words_free(&pw);
    eval_words_free(&rw);
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

static bool rouge1_recall(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    return rouge1(out, c, ref, true);
}

static bool rouge1_recall_nostem(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    return rouge1(out, c, ref, false);
}

const struct eval_metric eval_rouge1_recall = {
    "rouge1_recall", NULL,  "needle, package rouge-score: recall of the reference's stemmed words",
    EVAL_BEST,       false, rouge1_recall};
const struct eval_metric eval_rouge1_recall_nostem = {
    "rouge1_recall_nostem", NULL, "the same without stemming", EVAL_BEST, false, rouge1_recall_nostem};

static bool wordset_recall(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    struct eval_chars p, r = {0};
    struct eval_words pw = {0}, rw = {0};
    bool good = eval_chars_copy(&p, c->pred->at, c->pred->n);
    good = good && eval_chars_copy(&r, ref->at, ref->n);
    if (good) {
        eval_chars_lower(&p);
        eval_chars_lower(&r);
    }
    good = good && eval_words_split(&pw, &p) && eval_words_split(&rw, &r);
    if (good) {
        eval_words_sort(&pw);
        eval_words_unique(&pw);
        eval_words_sort(&rw);
        eval_words_unique(&rw);
        *out = rw.n > 0 ? (double)eval_words_common(&pw, &rw) / (double)rw.n : 0.0;
    }
    eval_words_free(&pw);
    eval_words_free(&rw);
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

const struct eval_metric eval_wordset_recall = {
    "wordset_recall", NULL,  "needle: share of the reference's distinct words, punctuation kept",
    EVAL_BEST,        false, wordset_recall};
