/* SPDX-License-Identifier: MIT */
/*
 * DuoAttention: retrieval heads keep everything, streaming heads the first and the most recent entries.
 * Paper: "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads" (arXiv
 * 2410.10819). Which is which comes from a profile: alpha[layer][KV head], 0 = streaming .. 1 = retrieval,
 * learned or measured once per model, with the number of sinks and recent entries it was made for (the
 * authors: 128 and 256).
 *
 * size    as few heads are streaming as the size needs, in order of alpha; what is left over makes their
 *         recent part longer, so that the total is exact (default)
 * ratio   kvpress: round(L H r) heads are streaming, halves to even, where r is the ratio asked for;
 * streaming heads keep sinks + last, so the size is measured, not reached Equal alpha: lower layer, then
 * lower head, is streaming first (the authors add noise). For the scorer streaming_llm, whose sinks should be
 * the profile's. New tokens are appended while decoding; nothing slides. Cost O((L H)^2), independent of n.
 */
#include "method.h"
#include "profile.h"

#include <math.h>

enum form { FORM_SIZE, FORM_RATIO };

struct opts {
    int32_t sinks, last;
    int32_t form;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_HEADS;
}

static int32_t choose(int32_t option, int32_t of_profile, int32_t otherwise)
{
    return option > 0 ? option : of_profile > 0 ? of_profile : otherwise;
}

static int32_t at_most(int32_t n, int32_t most)
{
    return n < most ? n : most;
}

/* The retrieval head of lowest alpha, as layer x heads + head; n_keep is p->n for retrieval heads. */
static int32_t next_head(const struct wnw__layer_problem *p, const int32_t *n_keep)
{
    int32_t best = -1;
    double lowest = 0;
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++) {
        const double alpha =
            p->profile->head_alpha[p->il[i / p->n_head_kv] * p->n_head_kv + i % p->n_head_kv];
        if (n_keep[i] == p->n && (best < 0 || alpha < lowest)) {
            best = i;
            lowest = alpha;
        }
    }
    return best;
}

static void by_size(const struct wnw__layer_problem *p, int32_t stream, int32_t *n_keep)
{
    const int32_t n_all = p->n_layer * p->n_head_kv, few = at_most(stream, p->budget);
    int64_t left = 0; /* of the size, with the heads as they are */
    for (int32_t i = 0; i < n_all; i++)
        left += at_most(p->n_entry[i], p->budget) - p->n_entry[i];
    for (int32_t i; left < 0 && (i = next_head(p, n_keep)) >= 0;) {
        n_keep[i] = few;
        left += p->n_entry[i] - at_most(p->n_entry[i], few);
    }
    for (bool again = true; again && left > 0;) { /* one more for each in turn */
        again = false;
        for (int32_t i = 0; i < n_all && left > 0; i++)
            if (n_keep[i] < p->n_entry[i]) {
                n_keep[i]++;
                left--;
                again = true;
            }
    }
}

static int allocate_model(const void *opts, const struct wnw__layer_problem *p, int32_t *n_keep,
                          float *scratch, char *warning)
{
    const struct opts *o = opts;
    (void)scratch;
    if (!p->profile || !p->profile->head_alpha)
        return wnw__fail(WNW_E_MISMATCH,
                         "duo needs one alpha per KV head; the profile of kind heads has none");
    const int32_t sinks = choose(o->sinks, p->profile->head_sink, 128);
    const int32_t stream = sinks + choose(o->last, p->profile->head_recent, 256);
    const int32_t n_all = p->n_layer * p->n_head_kv;
    if (p->prot[0].n_first != sinks && p->n > stream)
        wnw__warn(warning,
                  "duo's streaming heads are meant to keep %d first entries, the scorer keeps %d; write "
                  "duoattention:sinks=%d",
                  sinks, p->prot[0].n_first, sinks);
    for (int32_t i = 0; i < n_all; i++)
        n_keep[i] = p->n;
    if (o->form == FORM_SIZE) {
        by_size(p, stream, n_keep);
        return WNW_OK;
    }
    const double n_stream = nearbyint(n_all * (1 - p->mean / p->n));
    for (int32_t k = 0; k < (int32_t)n_stream && stream < p->n; k++)
        n_keep[next_head(p, n_keep)] = stream;
    return WNW_OK;
}

static const char *const forms[] = {"size", "ratio", NULL};

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
    {0}};

extern const struct wnw__head_budget wnw__head_budget_duo;
const struct wnw__head_budget wnw__head_budget_duo = {
    .name = "duo",
    .about = "Retrieval heads keep everything, streaming heads the first and the most recent entries.",
    .paper = "DuoAttention, arXiv 2410.10819",
    .details = "A profile of kind `heads` gives one `alpha` per KV head; heads of lowest `alpha` are "
               "streaming and keep `sinks` + `last` entries.\n\n"
               "`size` (default) makes as few heads streaming as the size needs and reaches it exactly; "
               "`ratio` makes that share of the heads streaming, as kvpress does, whatever size results.\n\n"
               "Cost independent of n.",
    .options = options,
    .options_size = sizeof(struct opts),
    .ragged = true,
    .needs = needs,
    .allocate_model = allocate_model,
};
