/* SPDX-License-Identifier: MIT */
/* LongBench's metrics except ROUGE. They reproduce the benchmark's own program, including its oddities. */
#include "eval/metrics/metric.h"
#include "eval/metrics/words.h"

#include <math.h>
#include <stdlib.h>

/* ---- Classes ---- */

/* The benchmark's program removes elements from the list that it iterates over, so that it skips the element
 * after a removed one. This function does the same. */
bool eval_score_classes(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    (void)variant;
    const struct eval_chars **found = calloc((size_t)c->n_classes + 1, sizeof *found);
    int32_t n = 0;
    if (!found)
        return false;
    for (int32_t i = 0; i < c->n_classes; i++)
        if (eval_chars_contain(&c->pred, &c->classes[i]))
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

/* ---- Numbers ---- */

static double share_equal(const struct eval_chars *pred, const struct eval_chars *want)
{
    struct eval_chars run;
    int32_t n = 0, n_same = 0;
    for (size_t next = 0; (run = eval_next_run(pred, &next, eval_is_digit)).n > 0; n++)
        n_same += eval_chars_equal(&run, want);
    return n > 0 ? (double)n_same / n : 0.0;
}

bool eval_score_retrieval(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    (void)variant;
    static const char lead[] = "Paragraph ";
    const size_t n_lead = sizeof lead - 1;
    *out = 0.0;
    for (size_t i = 0; i + n_lead < ref->n; i++) {
        size_t k = 0;
        while (k < n_lead && ref->at[i + k] == (uint32_t)lead[k])
            k++;
        if (k < n_lead || !eval_is_digit(ref->at[i + k]))
            continue;
        size_t next = i + k;
        const struct eval_chars want = eval_next_run(ref, &next, eval_is_digit);
        *out = share_equal(&c->pred, &want);
        return true;
    }
    return true;
}

bool eval_score_count(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    (void)variant;
    *out = share_equal(&c->pred, ref);
    return true;
}

/* ---- Code ---- */

/* The first line without a mark of code fences or comments; empty if every line has one. */
static struct eval_chars first_code_line(const struct eval_chars *c)
{
    size_t next = 0;
    while (next < c->n && c->at[next] == '\n')
        next++;
    while (next <= c->n) {
        const size_t begin = next;
        bool marked = false;
        for (; next < c->n && c->at[next] != '\n'; next++)
            marked = marked || c->at[next] == '`' || c->at[next] == '#' ||
                     (c->at[next] == '/' && next + 1 < c->n && c->at[next + 1] == '/');
        if (!marked)
            return (struct eval_chars){.at = c->at + begin, .n = next - begin};
        next++;
    }
    return (struct eval_chars){0};
}

/* Length of the longest common subsequence. false: out of memory. */
static bool common_length(size_t *out, const struct eval_chars *a, const struct eval_chars *b)
{
    size_t *length = calloc(b->n + 1, sizeof *length); /* [j]: of the subsequence of a[..i] and b[..j - 1] */
    if (!length)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        size_t diagonal = 0;
        for (size_t j = 1; j <= b->n; j++) {
            const size_t above = length[j];
            if (a->at[i] == b->at[j - 1])
                length[j] = diagonal + 1;
            else if (length[j - 1] > above)
                length[j] = length[j - 1];
            diagonal = above;
        }
    }
    *out = length[b->n];
    free(length);
    return true;
}

bool eval_score_code(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    (void)variant;
    const struct eval_chars line = first_code_line(&c->pred);
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
