/* SPDX-License-Identifier: MIT */
/*
 * ChunkKV: neighbouring tokens stay or go together, and the same ones in all heads of a layer, so that
 * phrases survive. Paper: "ChunkKV: Semantic-Preserving KV Cache Compression for Efficient Long-Context LLM
 * Inference" (arXiv 2502.00299). With chunks of c entries and any scorer's scores S(j,i):
 *
 *     s(i) = sum over KV heads j of S(j,i),  chunk score = mean of s over the chunk (the last may be short)
 *
 * rest=fill   protected entries stay; after them the best chunks while they fit, and what is left of the
 *             count goes to the best entries of the next chunk, so that the count is exact (default).
 *
 * rest=drop   max(1, floor(n_chunks (1 - r))) whole chunks of all n entries, as kvpress: the count is only
 *             near the size. Protected entries count as the layer's highest score + 1; n < c: plain top-k
 *
 * Heads that hold other tokens than this one (after an earlier ragged compression) are left out of the sum.
 * Cost O(H n) per head.
 */
#include "base/clamp.h"
#include "base/topk.h"
#include "method/count.h"
#include "method/protected.h"
#include "policy/part.h"

#include <string.h>

enum rest { REST_FILL, REST_DROP };

struct opts {
    int32_t chunk;
    int32_t rest;
};

static size_t scratch_size(const void *opts, int32_t n)
{
    const struct opts *o = opts;
    return (size_t)n + (size_t)(n / o->chunk) + 1;
}

static bool same_tokens(const wnw_select_problem *p, int32_t ih)
{
    if (p->n_entry[ih] != p->n)
        return false;
    return !p->obs || memcmp(p->obs->pos + (int64_t)ih * p->row, p->obs->pos + (int64_t)p->ih * p->row,
                             (size_t)p->n * sizeof *p->obs->pos) == 0;
}

/* The highest score of the layer's entries that are not protected. */
static float highest(const wnw_select_problem *p)
{
    float best = 0;
    bool any = false;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const float *s = p->layer_score + (int64_t)ih * p->row;
        for (int32_t i = p->prot.n_first; i < p->n_entry[ih] - p->prot.n_last; i++) {
            best = !any || s[i] > best ? s[i] : best;
            any = true;
        }
    }
    return best;
}

/* sum[i] = sum of the scores of entry i over the heads with the same tokens; entries outside of free_first ..
 * free_end - 1 count as `fixed` in each of them. */
static void sum_heads(const wnw_select_problem *p, int32_t free_first, int32_t free_end, float fixed,
                      float *sum)
{
    for (int32_t i = 0; i < p->n; i++)
        sum[i] = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const float *s = p->layer_score + (int64_t)ih * p->row;
        for (int32_t i = 0; i < p->n && (ih == p->ih || same_tokens(p, ih)); i++)
            sum[i] += i >= free_first && i < free_end ? s[i] : fixed;
    }
}

/* Mean of each chunk of s[n]; returns how many there are. */
static int32_t chunk_means(const float *s, int32_t n, int32_t c, float *mean)
{
    int32_t m = 0;
    for (int32_t at = 0; at < n; at += c) {
        const int32_t end = n - at < c ? n : at + c;
        double sum = 0;
        for (int32_t i = at; i < end; i++)
            sum += (double)s[i];
        mean[m++] = (float)(sum / (end - at));
    }
    return m;
}

/* The number of entries in the k best chunks of n entries. */
static int32_t size_of_best(const float *mean, int32_t n_chunk, int32_t k, int32_t n, int32_t c)
{
    struct wnw__cut cut = wnw__topk_cut(mean, n_chunk, k);
    bool last = false;
    for (int32_t t = 0; t < n_chunk; t++)
        last = wnw__cut_take(&cut, mean[t]);
    return k * c - (last ? n_chunk * c - n : 0);
}

/* Entries in chunks of c, the last one shorter where n is no multiple of it. */
struct chunks {
    const float *s; /* [n] */
    int32_t n, c;
    const float *mean; /* [n_chunk] of s */
    int32_t n_chunk;
    int32_t first; /* the number of entry 0 */
};

/* The numbers of the entries of the k best chunks, and of n_more best entries of the next. */
static int32_t take_chunks(const struct chunks *x, int32_t k, int32_t n_more, int32_t *keep)
{
    struct wnw__cut whole = wnw__topk_cut(x->mean, x->n_chunk, k);
    struct wnw__cut next = wnw__topk_cut(x->mean, x->n_chunk, k < x->n_chunk ? k + 1 : k);
    int32_t m = 0;
    for (int32_t t = 0; t < x->n_chunk; t++) {
        const int32_t at = t * x->c, len = x->n - at < x->c ? x->n - at : x->c;
        const bool taken = wnw__cut_take(&whole, x->mean[t]);
        if (wnw__cut_take(&next, x->mean[t]))
            m += wnw__topk(x->s + at, len, taken ? len : n_more, x->first + at, keep + m);
    }
    return m;
}

static int32_t select_fill(const struct opts *o, const wnw_select_problem *p, int32_t *keep, float *sum)
{
    const int32_t first = p->prot.n_first, last = p->prot.n_last, c = o->chunk;
    const int32_t n = p->n - first - last, left = p->n_keep - first - last;
    float *mean = sum + p->n;
    sum_heads(p, 0, p->n, 0, sum);
    const int32_t n_chunk = chunk_means(sum + first, n, c, mean);
    int32_t k = left / c;
    while (k < n_chunk && size_of_best(mean, n_chunk, k + 1, n, c) <= left)
        k++;
    const int32_t n_more = left - (k > 0 ? size_of_best(mean, n_chunk, k, n, c) : 0);
    int32_t m = wnw__keep_first(p, keep);
    const struct chunks chunks = {sum + first, n, c, mean, n_chunk, first};
    m += take_chunks(&chunks, k, n_more, keep + m);
    return wnw__keep_last(p, keep, m);
}

static int32_t select_drop(const struct opts *o, const wnw_select_problem *p, int32_t *keep, float *sum)
{
    float *mean = sum + p->n;
    if (p->n < o->chunk)
        return wnw__topk(p->score, p->n, p->n_keep, 0, keep);
    sum_heads(p, p->prot.n_first, p->n - p->prot.n_last, highest(p) + 1, sum);
    const int32_t n_chunk = chunk_means(sum, p->n, o->chunk, mean);
    /* The size before rounding, unless this head's count is not that size. */
    const double size = wnw__round_count(p->mean, p->rounding) == p->n_keep ? p->mean : p->n_keep;
    int32_t k = wnw__round_count(n_chunk * (size / p->n), p->rounding);
    k = (int32_t)wnw__clamp(k, 1, n_chunk);
    const struct chunks chunks = {sum, p->n, o->chunk, mean, n_chunk, 0};
    return take_chunks(&chunks, k, 0, keep);
}

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    return p->n_keep == p->n || o->rest == REST_FILL ? select_fill(o, p, keep, scratch)
                                                     : select_drop(o, p, keep, scratch);
}

static const char *const rests[] = {"fill", "drop", NULL};

static const wnw_option options[] = {{.name = "chunk",
                                      .help = "entries that stay or go together",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, chunk),
                                      .def = 10,
                                      .min = 1,
                                      .max = 65536},
                                     {.name = "rest",
                                      .help = "what no whole chunk fits into: filled from the next chunk, or "
                                              "dropped (kvpress)",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, rest),
                                      .def = REST_FILL,
                                      .choices = rests},
                                     {0}};

const wnw_selector wnw__selector_chunkkv = {
    .part = {WNW_SELECTOR_INIT, .name = "chunkkv",
             .about = "Whole chunks of neighbouring tokens, the same in all heads of a layer.",
             .paper = "ChunkKV, arXiv 2502.00299",
             .details =
                 "Scores are summed over the KV heads and averaged over each chunk of `chunk` entries; "
                 "the best "
                 "chunks "
                 "stay in every head of the layer.\n\n"
                 "`rest=fill` keeps protected entries and fills what no whole chunk fits into with the "
                 "best entries "
                 "of "
                 "the next one, so the count is exact. `rest=drop` keeps `max(1, floor(n_chunks "
                 "(1-r)))` chunks, as "
                 "kvpress does.\n\n"
                 "`O(H n)` per head.",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_MATCHES_HEADS},
    .scratch = scratch_size,
    .select = select_entries,
};
