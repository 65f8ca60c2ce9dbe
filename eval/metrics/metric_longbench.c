/* SPDX-License-Identifier: MIT */
/* LongBench's metrics except ROUGE. They reproduce the benchmark's own program, including its oddities. */
#include "eval/metrics/metric.h"
#include "eval/metrics/words.h"

#include <math.h>
#include <stdlib.h>

/* ---- Questions: words in common ---- */

static bool qa_f1(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    struct eval_chars p, r = {0};
    struct eval_words pw = {0}, rw = {0};
    bool good = eval_metric_normal(&p, c->pred);
    good = good && eval_metric_normal(&r, ref) && eval_words_split(&pw, &p) && eval_words_split(&rw, &r);
    if (good) {
        eval_words_sort(&pw);
        eval_words_sort(&rw);
        *out = eval_metric_f1(eval_words_common(&pw, &rw), pw.n, rw.n);
    }
    eval_words_free(&pw);
    eval_words_free(&rw);
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

const struct eval_metric eval_qa_f1 = {"qa_f1",   NULL,  "LongBench's questions: F1 of the normalised words",
                                       EVAL_BEST, false, qa_f1};

/* ---- Classes ---- */

/* The benchmark's program removes elements from the list that it iterates over, so that it skips the element
 * after a removed one. This function does the same. */
static bool classification(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    const struct eval_chars **found = calloc((size_t)c->n_classes + 1, sizeof *found);
    int32_t n = 0;
    if (!found)
        return false;
    for (int32_t i = 0; i < c->n_classes; i++)
        if (eval_chars_contain(c->pred, &c->classes[i]))
            found[n++] = &c->classes[i];
    for (int32_t i = 0; i < n; i++) {
        if (!eval_chars_contain(ref, found[i]) || eval_chars_equal(ref, found[i]))
            continue;
        for (int32_t k = i; k + 1 < n; k++)
            found[k] = found[k + 1];
        n--;
    }
    bool right = false;
    for (int32_t i = 0; i < n; i++)
        right = right || eval_chars_equal(ref, found[i]);
    *out = right ? 1.0 / n : 0.0;
    free(found);
    return true;
}

const struct eval_metric eval_classification = {
    "classification",
    NULL,
    "LongBench's trec: 1 over the classes that the prediction names, 0 where it lacks the right one",
    EVAL_BEST,
    true,
    classification};

/* ---- Numbers ---- */

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

/* The first run of digits at or after *from, empty if there is none; *from is moved after it. */
static struct eval_chars next_digits(const struct eval_chars *c, size_t *from)
{
    size_t begin = *from;
    while (begin < c->n && !is_digit(c->at[begin]))
        begin++;
    size_t end = begin;
    while (end < c->n && is_digit(c->at[end]))
        end++;
    *from = end;
    return (struct eval_chars){.at = c->at + begin, .n = end - begin};
}

static double share_equal(const struct eval_chars *pred, const struct eval_chars *want)
{
    int32_t n = 0, n_same = 0;
    for (size_t at = 0; at < pred->n;) {
        const struct eval_chars run = next_digits(pred, &at);
        n += run.n > 0;
        n_same += run.n > 0 && eval_chars_equal(&run, want);
    }
    return n > 0 ? (double)n_same / n : 0.0;
}

static bool retrieval(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    static const char lead[] = "Paragraph ";
    const size_t n_lead = sizeof lead - 1;
    *out = 0.0;
    for (size_t i = 0; i + n_lead < ref->n; i++) {
        size_t k = 0;
        while (k < n_lead && ref->at[i + k] == (uint32_t)lead[k])
            k++;
        if (k < n_lead || !is_digit(ref->at[i + k]))
            continue;
        size_t at = i + k;
        const struct eval_chars want = next_digits(ref, &at);
        *out = share_equal(c->pred, &want);
        return true;
    }
    return true;
}

static bool count(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    *out = share_equal(c->pred, ref);
    return true;
}

const struct eval_metric eval_retrieval = {
    "retrieval",
    NULL,
    "LongBench's passage_retrieval: share of the prediction's numbers that are the paragraph's",
    EVAL_BEST,
    false,
    retrieval};
const struct eval_metric eval_count = {
    "count",   NULL,  "LongBench's passage_count: share of the prediction's numbers that are the reference",
    EVAL_BEST, false, count};

/* ---- Code ---- */

/* The first line without a mark of code fences or comments; empty if every line has one. */
static struct eval_chars first_code_line(const struct eval_chars *c)
{
    size_t at = 0;
    while (at < c->n && c->at[at] == '\n')
        at++;
    while (at <= c->n) {
        const size_t begin = at;
        bool marked = false;
        for (; at < c->n && c->at[at] != '\n'; at++)
            marked = marked || c->at[at] == '`' || c->at[at] == '#' ||
                     (c->at[at] == '/' && at + 1 < c->n && c->at[at + 1] == '/');
        if (!marked)
            return (struct eval_chars){.at = c->at + begin, .n = at - begin};
        at++;
    }
    return (struct eval_chars){0};
}

/* Length of the longest common subsequence. false: out of memory. */
static bool common_length(size_t *out, const struct eval_chars *a, const struct eval_chars *b)
{
    size_t *row = calloc(b->n + 1, sizeof *row);
    if (!row)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        size_t diagonal = 0;
        for (size_t j = 1; j <= b->n; j++) {
            const size_t above = row[j];
            if (a->at[i] == b->at[j - 1])
                row[j] = diagonal + 1;
            else if (row[j - 1] > above)
                row[j] = row[j - 1];
            diagonal = above;
        }
    }
    *out = row[b->n];
    free(row);
    return true;
}

static bool code_sim(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    const struct eval_chars line = first_code_line(c->pred);
    size_t same = 0;
    *out = 1.0;
    if (eval_chars_equal(&line, ref))
        return true;
    *out = 0.0;
    if (line.n == 0 || ref->n == 0)
        return true;
    if (!common_length(&same, &line, ref))
        return false;
    /* rint rounds halves to even, as Python does. */
    *out = rint(100.0 * (2.0 * (double)same / (double)(line.n + ref->n))) / 100.0;
    return true;
}

const struct eval_metric eval_code_sim = {
    "code_sim", NULL,  "LongBench's code: similarity of the first line of code, by insertions and deletions",
    EVAL_BEST,  false, code_sim};
