/* SPDX-License-Identifier: MIT */
/* Metrics that look for the reference in the prediction: RULER, passkey, needles and SCBench. */
#include "eval/metrics/metric.h"
#include "eval/metrics/words.h"

#include <math.h>
#include <stdlib.h>

/* ---- Changes ---- */

static void plain_words(struct eval_chars *c)
{
    eval_chars_lower(c);
    eval_chars_drop_punctuation(c);
    eval_chars_collapse(c);
}

static bool is_article(const struct eval_chars *word)
{
    const uint32_t *letter = word->at;
    return (word->n == 1 && letter[0] == 'a') || (word->n == 2 && letter[0] == 'a' && letter[1] == 'n') ||
           (word->n == 3 && letter[0] == 't' && letter[1] == 'h' && letter[2] == 'e');
}

void eval_metric_normal(struct eval_chars *c)
{
    eval_chars_lower(c);
    eval_chars_drop_punctuation(c);
    struct eval_chars word;
    for (size_t next = 0; (word = eval_next_run(c, &next, eval_is_alnum)).n > 0;)
        for (size_t k = 0, n = is_article(&word) ? word.n : 0; k < n; k++)
            word.at[k] = ' ';
    eval_chars_collapse(c);
}

/* ---- Scorers ---- */

/* Whether a reference occurs literally and as a word of its own. For references such as "A" or "?", which normalisation makes empty: every
 * prediction contains the empty text. */
static bool has_literally(struct eval_chars *p, struct eval_chars *r)
{
    eval_chars_collapse(p);
    eval_chars_collapse(r);
    if (r->n == 0)
        return p->n == 0;
    const bool begins = eval_is_alnum(r->at[0]), ends = eval_is_alnum(r->at[r->n - 1]);
    for (size_t i = 0; i + r->n <= p->n; i++) {
        const struct eval_chars part = {.at = p->at + i, .n = r->n};
        const size_t after = i + r->n;
        if (eval_chars_equal(&part, r) && !(begins && i > 0 && eval_is_alnum(p->at[i - 1])) &&
            !(ends && after < p->n && eval_is_alnum(p->at[after])))
            return true;
    }
    return false;
}

static bool is_empty(const struct eval_chars *text, eval_change *change, bool *good)
{
    struct eval_chars copy;
    *good = eval_chars_copy(&copy, text);
    if (*good && change)
        change(&copy);
    const bool empty = *good && copy.n == 0;
    eval_chars_free(&copy);
    return empty;
}

/* 1 if the prediction contains the reference after a change of both. */
bool eval_score_contains(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    static eval_change *const changes[] = {[EVAL_LOWER_CASE] = eval_chars_lower,
                                           [EVAL_PLAIN_WORDS] = plain_words,
                                           [EVAL_NORMAL_FORM] = eval_metric_normal};
    struct eval_chars p = {0}, r = {0};
    bool good;
    /* RULER's and SCBench's programs find an empty reference in every prediction, and these variants are theirs. */
    const bool ours = variant == EVAL_PLAIN_WORDS || variant == EVAL_NORMAL_FORM;
    const bool literally = is_empty(ref, changes[variant], &good) && ours;
    good = good && eval_chars_copy(&p, &c->pred) && eval_chars_copy(&r, ref);
    if (good && changes[variant] && !literally) {
        changes[variant](&p);
        changes[variant](&r);
    }
    *out = good && (literally ? has_literally(&p, &r) : eval_chars_contain(&p, &r));
    eval_chars_free(&p);
    eval_chars_free(&r);
    return good;
}

/* Length of the longest run of code points that both have. false: out of memory. */
static bool longest_common_run(size_t *out, const struct eval_chars *a, const struct eval_chars *b)
{
    size_t *length = calloc(b->n + 1, sizeof *length); /* [j]: of the run that ends at a[i] and b[j - 1] */
    *out = 0;
    if (!length)
        return false;
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = b->n; j > 0; j--) {
            length[j] = a->at[i] == b->at[j - 1] ? length[j - 1] + 1 : 0;
            *out = length[j] > *out ? length[j] : *out;
        }
    free(length);
    return true;
}

bool eval_score_partial(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    size_t n = 0;
    (void)variant;
    const bool good = longest_common_run(&n, &c->pred, ref);
    *out = ref->n > 0 ? (double)n / (double)ref->n : 0.0;
    return good;
}

/* Reads the first number: digits with or without a fraction, without a sign. Returns false if there is
 * none. */
static bool first_number(double *out, const struct eval_chars *c)
{
    size_t i = 0;
    const struct eval_chars whole = eval_next_run(c, &i, eval_is_digit);
    double v = 0.0, unit = 1.0;
    if (whole.n == 0)
        return false;
    for (size_t k = 0; k < whole.n; k++)
        v = v * 10 + (double)(whole.at[k] - '0');
    if (i + 1 < c->n && c->at[i] == '.' && eval_is_digit(c->at[i + 1])) {
        double digits = 0.0;
        for (i++; i < c->n && eval_is_digit(c->at[i]) && unit < 1e18; i++, unit *= 10)
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

bool eval_score_number(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    double got, want;
    (void)variant;
    *out = 0.0;
    if (first_number(&got, &c->pred) && first_number(&want, ref))
        *out = (has_point(ref) ? got : trunc(got)) == want;
    return true;
}

static bool is_no_break(uint32_t c)
{
    return c != '\n';
}

/* The next line of c, without white space at its ends; *from is moved after it. */
static struct eval_chars next_line(const struct eval_chars *c, size_t *from)
{
    struct eval_chars line = eval_next_run(c, from, is_no_break);
    for (; line.n > 0 && eval_is_space(line.at[0]); line.n--)
        line.at++;
    while (line.n > 0 && eval_is_space(line.at[line.n - 1]))
        line.n--;
    return line;
}

static bool has_line(const struct eval_chars *c, const struct eval_chars *line)
{
    for (size_t next = 0; next < c->n;) {
        const struct eval_chars other = next_line(c, &next);
        if (eval_chars_equal(&other, line))
            return true;
    }
    return false;
}

/* The next line that is not empty; without characters: there is none. */
static struct eval_chars next_full_line(const struct eval_chars *c, size_t *from)
{
    struct eval_chars line = {0};
    while (line.n == 0 && *from < c->n)
        line = next_line(c, from);
    return line;
}

bool eval_score_lines(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    int32_t n = 0, n_same = 0;
    bool leads = true;
    for (size_t next = 0, at = 0; next < ref->n;) {
        const struct eval_chars line = next_full_line(ref, &next);
        if (line.n == 0)
            break;
        if (variant == EVAL_IN_PLACE) {
            const struct eval_chars other = next_full_line(&c->pred, &at);
            leads = leads && eval_chars_equal(&other, &line);
        } else {
            leads = has_line(&c->pred, &line);
        }
        n++;
        n_same += leads;
    }
    *out = n > 0 ? (double)n_same / n : 0.0;
    return true;
}
