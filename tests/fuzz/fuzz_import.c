/* SPDX-License-Identifier: MIT */
/* The first byte says what the rest, a file of another program, is to be read as. The model has 2 layers, 4
 * query and 2 KV heads of 8. */
#include "fuzz.h"

#include <math.h>

#include "peek_plan.h"
#include "winnow_calibrate.h"

enum { N_LAYER = 2, N_HEAD = 4, N_HEAD_KV = 2, N_EMBD_HEAD = 8 };

static void in_range(const double *x, size_t n, double max)
{
    for (size_t i = 0; x && i < n; i++)
        fuzz_require(x[i] >= 0 && x[i] <= max, "a number outside its range");
}

static void is_rank(const int32_t *rank)
{
    for (int32_t il = 0; rank && il < N_LAYER; il++) {
        uint32_t seen = 0;
        for (int32_t i = 0; i < N_HEAD; i++)
            seen |= 1U << rank[il * N_HEAD + i];
        fuzz_require(seen == (1U << N_HEAD) - 1, "a rank that leaves out a head");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"srh", "trad", "heads", "duo", "layers", "kvzap", "fastkvzip"};
    static const struct wnw__profile_shape shape = {
        .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = N_HEAD_KV, .d = N_EMBD_HEAD},
        .fingerprint = "0123456789abcdef0123456789abcdef"};
    struct fuzz_input in = {data, size};
    const char *as = words[fuzz_u8(&in) % (sizeof words / sizeof *words)];
    wnw_profile *p = NULL;
    fuzz_require(wnw__profile_new(&p, &shape) == WNW_OK, "no profile");
    if (fuzz_status(wnw__profile_read_as(p, fuzz_file(in.at, in.n), as))) {
        in_range(p->head_alpha, (size_t)N_LAYER * N_HEAD_KV, 1);
        in_range(p->head_score, (size_t)N_LAYER * N_HEAD, 1e30);
        in_range(p->layer_share, N_LAYER, 1);
        is_rank(p->srh_rank);
        is_rank(p->trad_rank);
        for (int64_t i = 0; p->inputs.number && i < N_LAYER * wnw__input_numbers(&p->inputs, &p->model); i++)
            fuzz_require(isfinite(p->inputs.number[i]), "a gate that is not finite");
        fuzz_require(wnw_profile_kinds(p) != 0, "a file was read and there is nothing");
    }
    wnw_profile_free(p);
    return 0;
}
