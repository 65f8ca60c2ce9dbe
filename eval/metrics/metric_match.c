/* SPDX-License-Identifier: MIT */
/* Metrics that look for the reference in the prediction: RULER, passkey, needles and SCBench. */
#include "eval/metrics/metric.h"

#include <math.h>
#include <stdlib.h>

/* Scores 1 if the prediction contains the reference after `change` was applied to copies of both. */
static bool contains_after(double *out, const struct eval_chars *pred, const struct eval_chars *ref,
                           void (*change)(struct eval_chars *))
{
    struct eval_chars p, r = {0};
    bool good = eval_chars_copy(&p, pred->at, pred->n);
    good = good && eval_chars_copy(&r, ref->at, ref->n);
    if (good) {
        change(&p);
        change(&r);
        *out = eval_chars_contain(&p, &r) ? 1.0 : 0.0;
    }
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

static bool string_match(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    return contains_after(out, c->pred, ref, eval_chars_lower);
}

const struct eval_metric eval_string_match_all = {
    "string_match_all",
    "all",
    "RULER: share of the references that occur in the prediction, in any case of letters",
    EVAL_MEAN,
    false,
    string_match};
const struct eval_metric eval_string_match_part = {
    "string_match_part", "part", "RULER's questions: 1 where any reference occurs in the prediction",
    EVAL_BEST,           false,  string_match};

static void plain_words(struct eval_chars *c)
{
    eval_chars_lower(c);
    eval_chars_drop_punctuation(c);
    eval_chars_collapse(c);
}

static bool contains(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    return contains_after(out, c->pred, ref, plain_words);
}

const struct eval_metric eval_contains = {
    "contains", NULL,  "needle: 1 where the reference occurs, punctuation and case of letters aside",
    EVAL_BEST,  false, contains};

static bool exact(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    struct eval_chars p, r = {0};
    bool good = eval_metric_normal(&p, c->pred);
    good = good && eval_metric_normal(&r, ref);
    if (good)
        *out = eval_chars_contain(&p, &r) ? 1.0 : 0.0;
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

const struct eval_metric eval_exact = {
    "exact",   NULL,  "passkey: 1 where the normalised reference occurs in the normalised prediction",
    EVAL_BEST, false, exact};

/* Length of the longest run of code points that both have. false: out of memory. */
static bool longest_common_run(size_t *out, const struct eval_chars *a, const struct eval_chars *b)
{
    size_t *row = calloc(b->n + 1, sizeof *row); /* [j]: length of the run that ends at a[i] and b[j - 1] */
    *out = 0;
    if (!row)
        return false;
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = b->n; j > 0; j--) {
            row[j] = a->at[i] == b->at[j - 1] ? row[j - 1] + 1 : 0;
            *out = row[j] > *out ? row[j] : *out;
        }
    free(row);
    return true;
}

static bool partial(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    size_t n;
    if (!longest_common_run(&n, c->pred, ref))
        return false;
    *out = ref->n > 0 ? (double)n / (double)ref->n : 0.0;
    return true;
}

const struct eval_metric eval_partial = {
    "partial", NULL,  "passkey: longest run of the reference that occurs in the prediction, as a share of it",
    EVAL_BEST, false, partial};

static bool kv(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    *out = eval_chars_contain(c->pred, ref) ? 1.0 : 0.0;
    return true;
}

const struct eval_metric eval_kv = {
    "kv",      NULL,  "SCBench: 1 where the reference occurs in the prediction as it is written",
    EVAL_BEST, false, kv};

/* Each code point is mapped to a single one; a code point without its own upper case stays the same in both
 * texts. */
static bool qa_substring(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    return contains_after(out, c->pred, ref, eval_chars_lower);
}

const struct eval_metric eval_qa_substring = {
    "qa_substring", NULL,  "SCBench's questions: 1 where any reference occurs, in any case of letters",
    EVAL_BEST,      false, qa_substring};

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

/* Reads the first number: digits with or without a fraction, without a sign. Returns false if there is
 * none. */
static bool first_number(double *out, const struct eval_chars *c)
{
    size_t i = 0;
    while (i < c->n && !is_digit(c->at[i]))
        i++;
    if (i == c->n)
        return false;
    double v = 0.0, unit = 1.0;
    for (; i < c->n && is_digit(c->at[i]); i++)
        v = v * 10 + (double)(c->at[i] - '0');
    if (i + 1 < c->n && c->at[i] == '.' && is_digit(c->at[i + 1])) {
        double digits = 0.0;
        for (i++; i < c->n && is_digit(c->at[i]) && unit < 1e18; i++, unit *= 10)
            digits = digits * 10 + (double)(c->at[i] - '0');
        v += digits / unit;
    }
    *out = v;
    return true;
}

static bool has_point(const struct eval_chars *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i] == '.')
            return true;
    return false;
}

static bool number(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    double got, want;
    *out = 0.0;
    if (first_number(&got, c->pred) && first_number(&want, ref))
        *out = (has_point(ref) ? got : trunc(got)) == want ? 1.0 : 0.0;
    return true;
}

const struct eval_metric eval_number = {
    "number",  NULL,  "SCBench's numbers: 1 where the first number of the prediction is the reference",
    EVAL_BEST, false, number};

/* The line of c that begins at *from, without white space at its ends; *from is moved after it. */
static struct eval_chars next_line(const struct eval_chars *c, size_t *from)
{
    size_t begin = *from, end = *from;
    while (end < c->n && c->at[end] != '\n')
        end++;
    *from = end + 1;
    while (begin < end && eval_is_space(c->at[begin]))
        begin++;
    while (end > begin && eval_is_space(c->at[end - 1]))
        end--;
    return (struct eval_chars){.at = c->at + begin, .n = end - begin};
}

static bool has_line(const struct eval_chars *c, const struct eval_chars *line)
{
    for (size_t at = 0; at < c->n;) {
        const struct eval_chars other = next_line(c, &at);
        if (eval_chars_equal(&other, line))
            return true;
    }
    return false;
}

static bool repeat_lines(double *out, const struct eval_case *c, const struct eval_chars *ref)
{
    int32_t n = 0, n_same = 0;
    for (size_t at = 0; at < ref->n;) {
        const struct eval_chars line = next_line(ref, &at);
        n += line.n > 0;
        n_same += line.n > 0 && has_line(c->pred, &line);
    }
    *out = n > 0 ? (double)n_same / n : 0.0;
    return true;
}

const struct eval_metric eval_repeat_lines = {
    "repeat_lines",
    NULL,
    "share of the reference's lines that the prediction has, white space at their ends aside",
    EVAL_BEST,
    false,
    repeat_lines};
