/* SPDX-License-Identifier: MIT */
/*
 * Attention inside chunks without the causal mask, so that late tokens are judged like early ones. Paper:
 * "Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores" (arXiv
 * 2507.08143). For the m tokens of a chunk and the query heads h of a KV head:
 *
 *     a(h,t,c) = softmax over c of q_t . k_c,  u(c) = mean over h of sum over t of a(h,t,c);
 *     score    = standardised over the layer: average over `pool` neighbours of u(c) ||v_c||_2
 *
 * kvpress' form is scaled=0 and padded=1. Its logits lack the factor of the model's attention (1 / sqrt(d)). Its last
 * chunk is filled up with zero keys and zero queries, which take part in the softmax and the sums. Pooling divides by
 * `pool` at the ends too. An entry whose query is not known receives attention but gives none. Observes all queries,
 * keys and values. Cost O(H_q n m d).
 */
#include "score/more/noncausal.h"
#include "base/vectors.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS | WNW_NEED_VALUES;
}

int wnw__noncausal_check(const char *owner, const struct wnw__noncausal_opts *o)
{
    return o->pool % 2 ? WNW_OK
                       : wnw__fail(WNW_E_ARG, "%s: option pool is %d; the pooling kernel must be odd", owner,
                                   o->pool);
}

static int check(const void *opts)
{
    return wnw__noncausal_check("noncausal", opts);
}

/* Scratch holds queries [m][d], probabilities [m][m] and u[n]. */
size_t wnw__noncausal_scratch(const struct wnw__noncausal_opts *o, const wnw_observation *obs)
{
    const size_t m = (size_t)o->chunk, d = (size_t)obs->n_embd_head;
    return m * d + m * m + (size_t)obs->n;
}

/* Queries of head h at the positions pos[m] that are known, one after the other; returns how many. */
static int32_t gather_queries(const wnw_observation *obs, int32_t h, const int32_t *pos, int32_t m, float *q)
{
    const int32_t first = obs->n_past - obs->n_queries, d = obs->n_embd_head;
    int32_t n = 0;
    for (int32_t t = 0; t < m; t++)
        if (pos[t] >= first)
            memcpy(q + (int64_t)n++ * d, obs->queries + ((int64_t)(pos[t] - first) * obs->n_head + h) * d,
                   (size_t)d * sizeof *q);
    return n;
}

/* Neighbouring entries of a KV head: their keys k[m][d], positions pos[m] and sums u[m]. */
struct chunk {
    const float *k;
    const int32_t *pos;
    int32_t m;
    float *u;
};

/* u[m] += weight x column sums of the attention of query head h among the entries of the chunk. q is scratch. */
static void add_chunk(const struct wnw__noncausal_opts *o, const wnw_observation *obs, int32_t h,
                      const struct chunk *chunk, float weight, float *q)
{
    const int32_t m = chunk->m;
    float *u = chunk->u, *p = q + (int64_t)o->chunk * obs->n_embd_head; /* [row][width] */
    const int32_t n_query = gather_queries(obs, h, chunk->pos, m, q), width = o->padded ? o->chunk : m;
    wnw__mul_nt(q, n_query, chunk->k, m, obs->n_embd_head, o->scaled ? obs->attn_scale : 1, p, width);
    for (int32_t t = 0; t < n_query; t++) {
        float *row = p + (int64_t)t * width;
        for (int32_t c = m; c < width; c++)
            row[c] = 0; /* a zero key */
        wnw__softmax(row, width);
        for (int32_t c = 0; c < m; c++)
            u[c] += weight * row[c];
    }
    for (int32_t c = 0; c < m; c++) /* zero queries look at everything alike */
        u[c] += weight * (float)(width - m) / (float)width;
}

static void weigh_by_values(const wnw_observation *obs, int32_t ih, int32_t first, int32_t end, float *u)
{
    const float *v = obs->values(obs, ih);
    for (int32_t i = first; i < end; i++)
        u[i] *= (float)wnw__norm(v + (int64_t)i * obs->n_embd_head, obs->n_embd_head);
}

int wnw__noncausal(const struct wnw__noncausal_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                   float *score, float *q)
{
    const int32_t group = obs->n_head / obs->n_head_kv, r = o->pool / 2;
    float *u = q + (int64_t)o->chunk * obs->n_embd_head + (int64_t)o->chunk * o->chunk;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        int32_t first;
        const int32_t end = wnw__between_ends(obs, ih, ends, &first);
        const float *k = obs->keys(obs, ih); /* [n][d] */
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = u[i] = 0;
        for (int32_t at = first; at < end; at += o->chunk) {
            const int32_t m = end - at < o->chunk ? end - at : o->chunk;
            const struct chunk chunk = {k + (int64_t)at * obs->n_embd_head, pos + at, m, u + at};
            for (int32_t g = 0; g < group; g++)
                add_chunk(o, obs, ih * group + g, &chunk, 1.0f / (float)group, q);
        }
        weigh_by_values(obs, ih, first, end, u);
        for (int32_t i = first; i < end; i++) {
            for (int32_t j = i - r < first ? first : i - r; j <= i + r && j < end; j++)
                out[i] += u[j];
            out[i] /= (float)o->pool;
        }
    }
    wnw__standardise(obs, ends, score);
    return WNW_OK;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    return wnw__noncausal_scratch(opts, obs);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    return wnw__noncausal(opts, obs, (struct wnw__ends){0, 0}, score, scratch);
}

static const wnw_option options[] = {WNW_OPTION_CHUNK(struct wnw__noncausal_opts, chunk),
                                     WNW_OPTION_CHUNK_POOL(struct wnw__noncausal_opts, pool),
                                     WNW_OPTION_SCALED(struct wnw__noncausal_opts, scaled),
                                     WNW_OPTION_PADDED(struct wnw__noncausal_opts, padded),
                                     {0}};

const wnw_scorer wnw__scorer_noncausal = {
    .part = {WNW_SCORER_INIT, .name = "noncausal",
             .about =
                 "Attention of every prompt token to its chunk, later tokens included, times value norm.",
             .paper = "Compactor, arXiv 2507.08143",
             .details =
                 "`u(c)` = mean over the group's query heads of the attention that entry `c` gets from all "
                 "tokens "
                 "of its chunk, without the causal mask; `u(c) ||v_c||` is averaged over `pool` neighbours "
                 "and "
                 "standardised over the layer.\n\n"
                 "kvpress leaves out the factor `1/sqrt(d)` (`scaled=0`) and lets the zeros that fill up the "
                 "last "
                 "chunk take part (`padded=1`).\n\n`O(H_q n chunk d)`.",
             .options = options, .options_size = sizeof(struct wnw__noncausal_opts),
             .flags = WNW_FLAG_PROMPT_ONLY, .check = check, .needs = needs},
    .scratch = scratch_size,
    .score = score,
};
