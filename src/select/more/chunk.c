/* SPDX-License-Identifier: MIT */
/*
 * Every stretch of c entries keeps its share, so that no part of a long prompt is emptied: after kvpress'
 * ChunkPress, which follows "FINCH: Prompt-guided Key-Value Cache Compression" (arXiv 2408.00167).
 *
 *     after protected entries: chunk [a, b) of n keeps its floor(k b / n) - floor(k a / n) best of k
 * The total is exact. kvpress truncates the count of each chunk by itself, to at least 1, and scores each
 * chunk as if it were alone; here a scorer sees the whole prompt. Cost O(n).
 */
#include "base/topk.h"
#include "method/protected.h"
#include "policy/part.h"

struct opts {
    int32_t chunk;
};

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    const int32_t first = p->prot.n_first, last = p->prot.n_last;
    const int64_t n = p->n - first - last, k = p->n_keep - first - last;
    (void)scratch;
    int32_t m = wnw__keep_first(p, keep);
    for (int64_t a = 0; a < n; a += o->chunk) {
        const int64_t b = n - a < o->chunk ? n : a + o->chunk;
        m += wnw__topk(p->score + first + a, (int32_t)(b - a), (int32_t)(k * b / n - k * a / n),
                       first + (int32_t)a, keep + m);
    }
    return wnw__keep_last(p, keep, m);
}

static const wnw_option options[] = {{.name = "chunk",
                                      .help = "entries that keep their share among themselves",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, chunk),
                                      .def = 1024,
                                      .min = 1,
                                      .max = 1048576},
                                     {0}};

const wnw_selector wnw__selector_chunk = {
    .part =
        {WNW_SELECTOR_INIT, .name = "chunk",
         .about = "The highest scores of every stretch of tokens, so that no part is emptied.",
         .paper = "FINCH, arXiv 2408.00167",
         .details =
             "Chunk `[a, b)` of `n` entries keeps its `floor(k b / n) - floor(k a / n)` best of the count "
             "`k`. A chunk whose share is less than one entry may keep none, because the total is "
             "exact.\n\nkvpress truncates each chunk's count by itself and scores each chunk as if it were "
             "alone.\n\n`O(n)`.",
         .options = options, .options_size = sizeof(struct opts)},
    .select = select_entries,
};
