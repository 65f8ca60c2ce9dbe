/* SPDX-License-Identifier: MIT */
/* The input is one or two profile files of a model of 2 layers, 4 query and 2 KV heads of 8; a NUL divides
 * them. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "peek_plan.h"
#include "winnow_calibrate.h"

enum { N_LAYER = 2, N_HEAD = 4, N_HEAD_KV = 2, N_EMBD_HEAD = 8 };

static void in_range(const double *x, size_t n, double min, double max, const char *sentence)
{
    for (size_t i = 0; x && i < n; i++)
        fuzz_require(x[i] >= min && x[i] <= max, sentence);
}

static void are_ranks(const int32_t *rank)
{
    for (int32_t il = 0; rank && il < N_LAYER; il++) {
        uint32_t seen = 0;
        for (int32_t ih = 0; ih < N_HEAD; ih++) {
            const int32_t h = rank[il * N_HEAD + ih];
            fuzz_require(h >= 0 && h < N_HEAD, "a rank outside the heads");
            seen |= 1U << h;
        }
        fuzz_require(seen == (1U << N_HEAD) - 1, "a rank that leaves out a head");
    }
}

/* What parts rely on when they read a profile. */
static void look_at(const wnw_profile *p)
{
    are_ranks(p->srh_rank);
    are_ranks(p->trad_rank);
    in_range(p->layer_share, N_LAYER, 0, 1, "a layer's share is no share");
    in_range(p->head_alpha, (size_t)N_LAYER * N_HEAD_KV, 0, 1, "a gate is not 0 to 1");
    const struct wnw__compiler_table *t = &p->compiler;
    for (int32_t i = 1; t->entropy_edge && i < t->n_entropy - 1; i++)
        fuzz_require(t->entropy_edge[i] > t->entropy_edge[i - 1], "edges of bins that do not ascend");
    for (int32_t i = 1; t->ppl_edge && i < t->n_ppl - 1; i++)
        fuzz_require(t->ppl_edge[i] > t->ppl_edge[i - 1], "edges of bins that do not ascend");
    if (t->tau)
        fuzz_require(t->default_ppl_bin >= 0 && t->default_ppl_bin < t->n_ppl, "a default bin that is none");
    /* Sanitizers see whether the arrays are as long as their shapes say. */
    double sum = 0;
    for (int64_t i = 0; t->tau && i < (int64_t)t->n_layer * t->n_entropy * t->n_ppl; i++)
        sum += (double)t->tau[i];
    for (int64_t i = 0; p->query_mean && i < N_LAYER * N_HEAD * N_EMBD_HEAD; i++)
        sum += (double)p->query_mean[i];
    for (int64_t i = 0; p->query_cov && i < N_LAYER * N_HEAD * N_EMBD_HEAD * N_EMBD_HEAD; i++)
        sum += (double)p->query_cov[i];
    for (int64_t i = 0; p->query_filter && i < N_LAYER * N_HEAD_KV * N_EMBD_HEAD; i++)
        sum += (double)p->query_filter[i];
    fuzz_require(!p->query_mean == !p->query_cov, "a mean of queries without their covariance");
    fuzz_require(isfinite(sum), "a number that is none");
}

static void add(wnw_profile *p, const uint8_t *data, size_t size)
{
    const uint32_t before = wnw_profile_kinds(p);
    if (fuzz_status(wnw_profile_add_file(p, fuzz_file(data, size))))
        fuzz_require((wnw_profile_kinds(p) & before) == before, "a file took away another's results");
    else
        fuzz_require(wnw_profile_kinds(p) == before, "a refused file changed the profile");
    look_at(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wnw__profile_shape shape = {
        .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = N_HEAD_KV, .d = N_EMBD_HEAD},
        .fingerprint = "0123456789abcdef0123456789abcdef"};
    wnw_profile *p = NULL;
    fuzz_require(wnw__profile_new(&p, &shape) == WNW_OK, "no profile");
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t first = nul ? (size_t)(nul - data) : size;
    add(p, data, first);
    if (nul)
        add(p, nul + 1, size - first - 1);
    wnw_profile_free(p);
    return 0;
}
