/* SPDX-License-Identifier: MIT */
/*
 * ThinK: key channels that contribute least to the products with the last queries become 0. Paper: "ThinK:
 * Thinner Key Cache by Query-Driven Pruning" (arXiv 2407.21018). Per KV head, over the last w queries and the
 * keys that stay:
 *
 *     score_c = mean of q_c^2 over queries and group  x  mean of k_c^2
 *     the floor(ratio d) channels of lowest score (of equal ones the first) are set to 0
 * in all entries but the last `recent`. This is the mask of kvpress (ThinKPress): rows keep their size, NO
 * BYTES ARE SAVED. The paper's saving needs rows of another width for each head, with the recent keys stored
 * separately. recent=32 is the authors' setting, kvpress prunes all (recent=0); keys read later are whole in both.
 * Observes the window's queries and keys. Cost O(n d).
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

struct opts {
    double ratio;
    int32_t window;
    int32_t recent;
};

static void needs(const void *opts, wnw_needs *out)
{
    out->flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_KEYS;
    out->window = ((const struct opts *)opts)->window;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_embd_head;
}

/* Mean square of channel c of the last w queries of the heads that read KV head ih. */
static double query_energy(const wnw_observation *obs, int32_t ih, int32_t w, int32_t c)
{
    const int32_t group = obs->n_head / obs->n_head_kv, d = obs->n_embd_head;
    double sum = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        for (int32_t q = obs->n_window - w; q < obs->n_window; q++) {
            const double x = (double)obs->window_queries[((int64_t)h * obs->n_window + q) * d + c];
            sum += x * x;
        }
    return sum / ((double)group * w);
}

static int32_t prune(const void *opts, const wnw_contents_problem *p, int32_t *out, int32_t *n_spared,
                     float *score)
{
    const struct opts *o = opts;
    const wnw_observation *obs = p->obs;
    const int32_t d = obs->n_embd_head, n_pruned = wnw__round_count(d * o->ratio, WNW_ROUND_EXACT);
    const int32_t w = o->window < obs->n_window ? o->window : obs->n_window;
    const float *k = obs->keys(obs, p->ih);
    *n_spared = o->recent;
    if (p->n_keep <= o->recent || w == 0)
        return 0;
    for (int32_t c = 0; c < d; c++) {
        double sum = 0;
        for (int32_t t = 0; t < p->n_keep; t++) {
            const double x = (double)k[(int64_t)p->keep[t] * d + c];
            sum += x * x;
        }
        score[c] = (float)-(sum / p->n_keep * query_energy(obs, p->ih, w, c));
    }
    return wnw__topk(score, d, n_pruned, 0, out);
}

static const wnw_option options[] = {{.name = "ratio",
                                      .help = "share of the key channels that become 0",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, ratio),
                                      .def = 0.4,
                                      .min = 0,
                                      .max = 1},
                                     {.name = "window",
                                      .help = "last prompt tokens whose queries say which channels matter",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, window),
                                      .def = 32,
                                      .min = 1,
                                      .max = 4096},
                                     {.name = "recent",
                                      .help = "last entries whose keys keep all channels",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, recent),
                                      .def = 32,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

const wnw_contents wnw__contents_think = {
    .part =
        {WNW_CONTENTS_INIT, .name = "think",
         .about = "The key channels that matter least to the last queries become 0. Saves no bytes.",
         .paper = "ThinK, arXiv 2407.21018",
         .details =
             "Per KV head `score_c = mean q_c^2 * mean k_c^2` over the last `window` queries of the group "
             "and the "
             "keys that stay; the `floor(ratio d)` lowest channels become 0 in all keys but the last "
             "`recent`. "
             "Keys "
             "that are read later are whole.\n\n"
             "**No memory is saved**: rows keep their width, `kv_bytes` shows it, and attention reads as "
             "much as "
             "before. It is kvpress' mask, which tells what the paper's narrower rows would do to "
             "answers. With "
             "q8_0 and q4_0 the pruned rows are rounded once more. Works where nothing is evicted, too: "
             "`full+think`.\n\n"
             "`recent=32` and `ratio=0.4` are the authors' setting; kvpress prunes all keys "
             "(`recent=0`).\n\n"
             "Cost: O(n d) per KV head.",
         .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_PROMPT_ONLY,
         .needs = needs},
    .scratch = scratch_size,
    .prune = prune,
};
