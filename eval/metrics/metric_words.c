/* SPDX-License-Identifier: MIT */
/* Words in common: LongBench's F1, ROUGE-1 as Google's package counts it, and sets of words. */
#include "eval/metrics/metric.h"
#include "eval/metrics/porter.h"
#include "eval/metrics/words.h"

/* Leaves words of a to z and 0 to 9 in lower case. */
static void plain_letters(struct eval_chars *c)
{
    eval_chars_lower(c);
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i] >= 0x80 || !eval_is_alnum(c->at[i]))
            c->at[i] = ' ';
}

/* Splits what a change leaves of a text, which *c gets, into sorted words. Returns false if memory runs out. */
static bool take_words(struct eval_words *w, struct eval_chars *c, const struct eval_chars *text, int variant)
{
    static eval_change *const changes[] = {[EVAL_NORMAL_F1] = eval_metric_normal,
                                           [EVAL_STEM_RECALL] = plain_letters,
                                           [EVAL_WORD_RECALL] = plain_letters,
                                           [EVAL_SET_RECALL] = eval_chars_lower};
    if (!eval_chars_copy(c, text))
        return false;
    changes[variant](c);
    if (!eval_words_split(w, c))
        return false;
    for (size_t i = 0; variant == EVAL_STEM_RECALL && i < w->n; i++)
        if (w->at[i].n > 3)
            eval_porter_stem(&w->at[i]);
    eval_words_sort(w);
    if (variant == EVAL_SET_RECALL)
        eval_words_unique(w);
    return true;
}

/* 2PR/(P+R) with P = same / n_pred and R = same / n_ref; 0 if `same` is 0. */
static double f1(double same, double n_pred, double n_ref)
{
    const double p = same / n_pred, r = same / n_ref;
    return same > 0 ? 2 * p * r / (p + r) : 0.0;
}

bool eval_score_words(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    struct eval_chars p = {0}, r = {0};
    struct eval_words pw = {0}, rw = {0};
    const bool good = take_words(&pw, &p, &c->pred, variant) && take_words(&rw, &r, ref, variant);
    if (good) {
        const double same = (double)eval_words_common(&pw, &rw), n = (double)rw.n;
        const double recall = n > 0 ? same / n : 0.0;
        *out = variant == EVAL_NORMAL_F1 ? f1(same, (double)pw.n, n) : recall;
    }
    eval_words_free(&pw);
    eval_words_free(&rw);
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}
