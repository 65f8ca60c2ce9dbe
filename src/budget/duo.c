/* SPDX-License-Identifier: MIT */
/*
 * DuoAttention: retrieval heads keep everything, streaming heads the first and the most recent entries.
 * Paper: "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads" (arXiv
 * 2410.10819). Which is which comes from a profile: alpha[layer][KV head], 0 = streaming .. 1 = retrieval,
 * learned or measured once per model, with the number of sinks and recent entries it was made for (the
 * authors: 128 and 256).
 *
 *     size    as few heads are streaming as the size needs, in order of alpha; what is left over makes the
 *             recent part of all of them longer, one entry each in turn, so that the total is exact (default)
 *     ratio   kvpress: round(L H r) heads are streaming, halves to even, where r is the ratio asked for;
 *             streaming heads keep sinks + last, so the size is measured, not reached
 *
 * With source=prompt alpha measures how far back the prompt's mean query looks along its mean key over 500
 * positions. The first 4 queries do not count, as in expected attention; kvpress' mean runs over all of a
 * text.
 *
 * Of heads with equal alpha the one of the lower layer, then the lower head, is streaming first (the authors
 * add noise). The scorer is meant to be streaming_llm with the profile's number of sinks. While decoding,
 * retrieval heads grow and streaming heads slide, as in the paper (slide=0: all grow, as in kvpress). Cost
 * O((L H)^2), independent of n.
 */
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>

enum form { FORM_SIZE, FORM_RATIO };
enum source { SOURCE_PROFILE, SOURCE_PROMPT };

enum { SPAN = 500, MAX_ROT = 512, SKIP = 4 };

struct opts {
    int32_t sinks, last;
    int32_t form;
    int32_t source;
    int32_t slide;
};

static uint32_t flags_of(const void *opts)
{
    return ((const struct opts *)opts)->source == SOURCE_PROFILE ? WNW_FLAG_BLIND : 0;
}

static bool slides(const void *opts)
{
    return ((const struct opts *)opts)->slide;
}

static void needs(const void *opts, wnw_needs *out)
{
    if (((const struct opts *)opts)->source != SOURCE_PROFILE)
        return;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_HEADS;
}

/* ---- Scores from the prompt ---- */

static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    const bool prompt = ((const struct opts *)opts)->source == SOURCE_PROMPT;
    return prompt ? (size_t)shape->n_layer * (size_t)shape->n_head_kv : 0;
}

static void gather_needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERY_STATS | WNW_NEED_KEYS | WNW_NEED_ROPE;
    out->skip = SKIP; /* sinks; the same number as expected attention, so that both can share a run */
}

static int32_t first_of(const wnw_observation *obs, int32_t pair)
{
    return obs->rope_neox ? pair : 2 * pair;
}

static int32_t second_of(const wnw_observation *obs, int32_t pair)
{
    return obs->rope_neox ? pair + obs->n_rot / 2 : 2 * pair + 1;
}

/* Mean of the keys of KV head ih before RoPE: every key is turned back by its position. */
static void mean_key(const wnw_observation *obs, int32_t ih, double *mean)
{
    const int32_t n_pair = obs->n_rot / 2, n = obs->n_entry[ih], d = obs->n_embd_head;
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    const float *keys = obs->keys(obs, ih);
    double cs[MAX_ROT / 2], sn[MAX_ROT / 2];
    for (int32_t c = 0; c < d; c++)
        mean[c] = 0;
    for (int32_t i = 0; i < n; i++) {
        const float *k = keys + (int64_t)i * d;
        const bool next = i % 64 != 0 && pos[i] == pos[i - 1] + 1;
        for (int32_t p = 0; p < n_pair; p++) {
            const double theta = (double)obs->rope_theta[p];
            if (!next) {
                cs[p] = cos(pos[i] * theta);
                sn[p] = sin(pos[i] * theta);
            } else { /* the angle advances by one step; it is computed exactly every 64 entries */
                const double c1 = cos(theta), s1 = sin(theta), c0 = cs[p];
                cs[p] = c0 * c1 - sn[p] * s1;
                sn[p] = sn[p] * c1 + c0 * s1;
            }
            const double x = (double)k[first_of(obs, p)], y = (double)k[second_of(obs, p)];
            mean[first_of(obs, p)] += (cs[p] * x + sn[p] * y) / n;
            mean[second_of(obs, p)] += (cs[p] * y - sn[p] * x) / n;
        }
        for (int32_t c = obs->n_rot; c < d; c++)
            mean[c] += (double)k[c] / n;
    }
}

/* How far back the mean query q looks among mean keys k: 0 .. 1. */
static double reach(const wnw_observation *obs, const float *q, const double *k)
{
    double logit[SPAN], most = -INFINITY, sum = 0, far = 0;
    for (int32_t j = 0; j < SPAN; j++) {
        logit[j] = 0;
        for (int32_t p = 0; p < obs->n_rot / 2; p++) {
            const double angle = (j - (SPAN - 1)) * (double)obs->rope_theta[p], c = cos(angle),
                         s = sin(angle);
            const double kx = k[first_of(obs, p)], ky = k[second_of(obs, p)];
            logit[j] += (double)q[first_of(obs, p)] * (c * kx - s * ky) +
                        (double)q[second_of(obs, p)] * (s * kx + c * ky);
        }
        for (int32_t i = obs->n_rot; i < obs->n_embd_head; i++)
            logit[j] += (double)q[i] * k[i];
        logit[j] *= (double)obs->attn_scale;
        most = logit[j] > most ? logit[j] : most;
    }
    for (int32_t j = 0; j < SPAN; j++) {
        const double a = exp(logit[j] - most);
        sum += a;
        far += a * (SPAN - j) / SPAN;
    }
    return far / sum;
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *alpha)
{
    (void)opts;
    const int32_t group = obs->n_head / obs->n_head_kv, d = obs->n_embd_head;
    double k[MAX_ROT];
    if (d > MAX_ROT)
        return wnw__fail(WNW_E_UNSUPPORTED, "duo: source=prompt serves heads of up to %d elements, not %d",
                         MAX_ROT, d);
    alpha += (int64_t)obs->il * obs->n_head_kv;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        mean_key(obs, ih, k);
        alpha[ih] = 0;
        for (int32_t h = ih * group; h < (ih + 1) * group; h++)
            alpha[ih] += reach(obs, obs->query_mean + (int64_t)h * d, k) / group;
    }
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* ---- Sharing out ---- */

/* alpha of head i = layer x heads + head, where only layers that take part are counted. */
static double alpha_of(const struct opts *o, const wnw_layer_problem *p, int32_t i)
{
    const int32_t at = p->il[i / p->n_head_kv] * p->n_head_kv + i % p->n_head_kv;
    return o->source == SOURCE_PROMPT ? p->gathered[at] : p->profile->head_alpha[at];
}

static int32_t choose(int32_t option, int32_t of_profile, int32_t otherwise)
{
    if (option > 0)
        return option;
    if (of_profile > 0)
        return of_profile;
    return otherwise;
}

static int32_t at_most(int32_t n, int32_t most)
{
    return n < most ? n : most;
}

/* The retrieval head of lowest alpha, as layer x heads + head; n_keep is p->n for retrieval heads. */
static int32_t next_head(const struct opts *o, const wnw_layer_problem *p, const int32_t *n_keep)
{
    int32_t best = -1;
    double lowest = 0;
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++) {
        const double alpha = alpha_of(o, p, i);
        if (n_keep[i] == p->n && (best < 0 || alpha < lowest)) {
            best = i;
            lowest = alpha;
        }
    }
    return best;
}

static void by_size(const struct opts *o, const wnw_layer_problem *p, int32_t stream, int32_t *n_keep)
{
    const int32_t n_all = p->n_layer * p->n_head_kv, few = at_most(stream, p->budget);
    int64_t left =
        (int64_t)n_all * p->budget; /* entries that the heads do not use yet; negative: they hold too many */
    for (int32_t i = 0; i < n_all; i++)
        left -= p->n_entry[i];
    for (int32_t i; left < 0 && (i = next_head(o, p, n_keep)) >= 0;) {
        n_keep[i] = few;
        left += p->n_entry[i] - at_most(p->n_entry[i], few);
    }
    for (bool again = true; again && left > 0;) { /* one more entry for each streaming head in turn */
        again = false;
        for (int32_t i = 0; i < n_all && left > 0; i++)
            if (n_keep[i] < p->n_entry[i]) {
                n_keep[i]++;
                left--;
                again = true;
            }
    }
}

static void by_ratio(const struct opts *o, const wnw_layer_problem *p, int32_t stream, int32_t *n_keep)
{
    const double n_stream = nearbyint(p->n_layer * p->n_head_kv * (1 - p->mean / p->n));
    for (int32_t k = 0; k < (int32_t)n_stream && stream < p->n; k++)
        n_keep[next_head(o, p, n_keep)] = stream;
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    (void)scratch;
    const bool profile = o->source == SOURCE_PROFILE;
    if (profile && (!p->profile || !p->profile->head_alpha))
        return wnw__fail(WNW_E_MISMATCH, "duo needs one alpha per KV head; the profile of kind heads has "
                                         "none; source=prompt measures them");
    const int32_t sinks = choose(o->sinks, profile ? p->profile->head_sink : 0, 128);
    const int32_t stream = sinks + choose(o->last, profile ? p->profile->head_recent : 0, 256);
    const int32_t n_all = p->n_layer * p->n_head_kv;
    if (p->prot[0].n_first != sinks && p->n > stream)
        wnw__warn(warning,
                  "duo's streaming heads are meant to keep %d first entries, the scorer keeps %d; write "
                  "duoattention:sinks=%d",
                  sinks, p->prot[0].n_first, sinks);
    for (int32_t i = 0; i < n_all; i++)
        n_keep[i] = p->n;
    if (o->form == FORM_SIZE)
        by_size(o, p, stream, n_keep);
    else
        by_ratio(o, p, stream, n_keep);
    for (int32_t i = 0; i < n_all; i++) /* a retrieval head may hold fewer than p->n entries */
        n_keep[i] = at_most(n_keep[i], p->n_entry[i]);
    return WNW_OK;
}

static const char *const forms[] = {"size", "ratio", NULL};
static const char *const sources[] = {"profile", "prompt", NULL};

static const wnw_option options[] = {
    {.name = "sinks",
     .help = "first entries that streaming heads keep; 0 = the profile's",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sinks),
     .def = 0,
     .min = 0,
     .max = 65536},
    {.name = "last",
     .help = "most recent entries that streaming heads keep; 0 = the profile's",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, last),
     .def = 0,
     .min = 0,
     .max = 1048576},
    {.name = "form",
     .help = "size: as many streaming heads as the size needs; ratio: that share of the heads streams",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_SIZE,
     .choices = forms},
    {.name = "source",
     .help = "where alpha comes from: a profile, or the prompt's mean queries and keys",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, source),
     .def = SOURCE_PROFILE,
     .choices = sources},
    {.name = "slide",
     .help = "under rules, streaming heads hold their count while decoding",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, slide),
     .def = 1},
    {0}};

const wnw_head_budget wnw__head_budget_duo = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "duo",
         .about = "Retrieval heads keep everything, streaming heads the first and the most recent entries.",
         .paper = "DuoAttention, arXiv 2410.10819",
         .details =
             "A profile of kind `heads` gives one `alpha` per KV head; heads of lowest `alpha` are "
             "streaming and keep `sinks` + `last` entries.\n\n"
             "`size` (default) makes as few heads streaming as the size needs and reaches it exactly: "
             "what is "
             "left over goes to all streaming heads in turn; "
             "`ratio` makes that share of the heads streaming, as kvpress does; the size is what results.\n\n"
             "`source=prompt` measures instead how far back the prompt's mean query looks along its mean "
             "key over 500 "
             "positions, as kvpress does on the fly over a text collection; the first 4 queries do not "
             "count.\n\n"
             "While the session follows rules (`--evict`), streaming heads hold their count after the "
             "prompt "
             "too: "
             "with every decoded token the oldest entry after the sinks goes. Retrieval heads grow. "
             "`slide=0` "
             "lets all heads grow, as kvpress does.\n\n"
             "Cost independent of n; with `source=prompt` O(n d) per KV head.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES, .flags_of = flags_of, .needs = needs,
         .gather = &gather},
    .allocate_model = allocate_model,
    .slides = slides,
};
