/* SPDX-License-Identifier: MIT */
/*
 * What replay's scores mean in each KV head, learned from a sample: some tokens of the text are repeated in truth, as KVzip
 * (arXiv 2505.23416) repeats all. Replay lets the first reading's queries stand for the repetition's. In late layers they are
 * not alike, since the repetition knows its next token and the first reading does not, so that these heads look emptier than
 * they are and early ones fuller. Within a head the order is much less wrong. From no paper that we know. Of a KV head's
 * entries c in the sample, with the largest over its query heads,
 *
 *     x_c = log(score(c) + 1e-6)     y_c = log(Z(c) + 1e-6)        Z: attention that the repetition gave at most
 *     b = clamp(cov(x, y) / (var(x) + 0.1), 0.01, 1.5)             covariance and variance with divisor n
 *     score(c) <- min(1, exp(mean(y) + b (x_c - mean(x))))         for all entries, of each query head
 *
 * A prediction that shrinks towards the head's mean where replay knows little, as it should. The order within a head stays. Heads
 * with fewer than 8 entries in the sample stay as they are.
 */
#include "policy/window.h"
#include "score/score.h"

#include <math.h>

#define LEAST    1e-6
#define SHRINK   0.1
#define LEAST_B  0.01
#define MOST_B   1.5
#define N_ENOUGH 8

struct line {
    double x, y, b; /* through (x, y) */
};

static double log_of(double s)
{
    return log(s + LEAST);
}

/* The largest over the query heads of KV head ih that are used. */
static float most_of(const wnw_observation *obs, const float *rows, int32_t ih, int32_t c)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    float most = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        if (wnw__query_head_used(obs, h) && rows[(int64_t)h * obs->n + c] > most)
            most = rows[(int64_t)h * obs->n + c];
    return most;
}

/* The line of KV head ih; false where the sample says too little. */
static bool learn(const wnw_observation *obs, const float *score, int32_t ih, int32_t first, struct line *out)
{
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int32_t c = first; c < obs->n_entry[ih]; c++) {
        if (pos[c] < obs->pass2_from || pos[c] >= obs->pass2_to)
            continue;
        const double a = log_of((double)most_of(obs, score, ih, c)),
                     b = log_of((double)most_of(obs, obs->pass2_max, ih, c));
        n++;
        x += a;
        y += b;
        xx += a * a;
        xy += a * b;
    }
    if (n < N_ENOUGH)
        return false;
    const double var = xx / n - x / n * (x / n),
                 b = (xy / n - x / n * (y / n)) / ((var > 0 ? var : 0) + SHRINK);
    *out = (struct line){.x = x / n, .y = y / n, .b = b < LEAST_B ? LEAST_B : b > MOST_B ? MOST_B : b};
    return true;
}

void wnw__replay_by_sample(const wnw_observation *obs, int32_t n_sink, float *score)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        struct line line;
        int32_t first = obs->n_prefix > 0 ? 0 : n_sink;
        while (obs->n_prefix > 0 && first < obs->n_entry[ih] && pos[first] < obs->n_prefix)
            first++;
        if (!learn(obs, score, ih, first, &line))
            continue;
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            float *s = score + (int64_t)h * obs->n;
            for (int32_t c = first; c < obs->n_entry[ih] && wnw__query_head_used(obs, h); c++) {
                const double p = exp(line.y + line.b * (log_of((double)s[c]) - line.x));
                s[c] = p < 1 ? (float)p : 1;
            }
        }
    }
}
