/* SPDX-License-Identifier: MIT */
/*
 * The input is a keep-plan and what is done with it: byte 0 the type of the cache, byte 1 how the plan's
 * shape differs from the cache's, then a byte for each head that says how its positions are written, then the
 * positions. Plans that are accepted are applied; what the cache holds afterwards is what the plan said.
 */
#include "fuzz.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 40, MAX_HEADS = 16, MAX_POSITIONS = 48 };

struct plan_input {
    int32_t n_layer, n_head_kv, n_tokens;
    int32_t n[MAX_HEADS];
    int32_t position[MAX_HEADS][MAX_POSITIONS];
    const int32_t *at[MAX_HEADS];
};

enum how { ALL, NONE, MASK, LIST, N_HOW };

static int32_t read_head(struct fuzz_input *in, int32_t *position)
{
    int32_t n = 0;
    const uint8_t how = fuzz_u8(in) % N_HOW;
    if (how == LIST) {
        n = fuzz_u8(in) % MAX_POSITIONS;
        for (int32_t i = 0; i < n; i++)
            position[i] = (int8_t)fuzz_u8(in);
        return n;
    }
    for (int32_t at = 0, bits = 0; at < N_TOKENS; at++) {
        if (how == MASK && at % 8 == 0)
            bits = fuzz_u8(in);
        if (how == ALL || (how == MASK && (bits >> at % 8 & 1)))
            position[n++] = at;
    }
    return n;
}

static void read_plan(struct plan_input *p, struct fuzz_input *in, const wnw_model_info *info)
{
    const uint8_t shape = fuzz_u8(in);
    p->n_layer = info->n_layer + (shape % 5 == 1) - (shape % 5 == 2);
    p->n_head_kv = info->n_head_kv + (shape % 5 == 3) - (shape % 5 == 4);
    p->n_tokens = shape < 200 ? N_TOKENS : (int8_t)fuzz_u8(in);
    fuzz_require(p->n_layer * p->n_head_kv <= MAX_HEADS, "the model has too many heads for this target");
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++) {
        p->n[i] = read_head(in, p->position[i]);
        p->at[i] = p->position[i];
    }
}

static void check_plan(const wnw_plan *plan, const struct plan_input *p)
{
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++) {
        const int32_t *at;
        const int32_t n = wnw_plan_head(plan, i / p->n_head_kv, i % p->n_head_kv, &at);
        fuzz_require(n == p->n[i] && (n == 0 || memcmp(at, p->at[i], (size_t)n * sizeof *at) == 0),
                     "a plan is not what it was made from");
    }
}

static void check_cache(const wnw_session *s, const struct plan_input *p)
{
    for (int32_t i = 0; i < p->n_layer * p->n_head_kv; i++) {
        const int32_t il = i / p->n_head_kv, ih = i % p->n_head_kv, n = wnw_cache_n(s, il, ih);
        fuzz_require(n == p->n[i] && (n == 0 || memcmp(wnw_cache_positions(s, il, ih), p->at[i],
                                                       (size_t)n * sizeof(int32_t)) == 0),
                     "the cache does not hold what the plan kept");
    }
}

/* Going on after the plan was applied. */
static void go_on(wnw_session *s, const wnw_model_info *info, uint8_t what)
{
    static const char *const recipes[] = {"streaming_llm",         "knorm", "snapkv:window=4",
                                          "lagkv:lag=4,sink=2",    "tova",  "adakv:window=4",
                                          "streaming_llm+rerotate"};
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    for (int32_t token = 5; token < 8; token++) {
        if (!fuzz_status(wnw_session_decode(s, token)))
            return;
        const float *logits = wnw_session_logits(s);
        for (int32_t i = 0; i < info->n_vocab; i++)
            fuzz_require(isfinite(logits[i]), "a logit that is no number");
    }
    if (what & 1)
        (void)fuzz_status(wnw_session_renumber(s));
    wnw_policy *policy = NULL;
    fuzz_require(wnw_policy_parse(&policy, recipes[what / 2 % (sizeof recipes / sizeof *recipes)], NULL) ==
                     WNW_OK,
                 "a recipe of this target is refused");
    (void)fuzz_status(wnw_session_compress(s, policy, &half, NULL));
    (void)fuzz_status(wnw_session_decode(s, 8));
    wnw_policy_free(policy);
}

/* A session of each type of cache that has read the prompt. */
static const wnw_session *base(wnw_kv_type type, const wnw_model **model)
{
    static wnw_model *m;
    static wnw_session *read[4];
    if (!m) {
        char path[4096];
        fuzz_seed_path(path, "gguf/llama");
        fuzz_require(wnw_model_open(&m, path, NULL) == WNW_OK, "the target's model cannot be opened");
    }
    if (!read[type]) {
        wnw_session_params params = wnw_session_default_params();
        params.n_ctx = 64;
        params.n_threads = 1;
        params.kv_type = type;
        int32_t tokens[N_TOKENS];
        for (int32_t i = 0; i < N_TOKENS; i++)
            tokens[i] = 3 + i * 7 % 250;
        fuzz_require(wnw_session_new(&read[type], m, &params) == WNW_OK &&
                         wnw_session_prefill(read[type], tokens, N_TOKENS, NULL, NULL) == WNW_OK,
                     "the target's prompt cannot be read");
    }
    *model = m;
    return read[type];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct plan_input p;
    const wnw_model *m;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_plan *plan = NULL;
    wnw_session *s = NULL;
    const wnw_session *from = base((wnw_kv_type)(fuzz_u8(&in) % 4), &m);
    wnw_model_get_info(m, &info);
    read_plan(&p, &in, &info);
    if (!fuzz_status(wnw_plan_new(&plan, p.n_layer, p.n_head_kv, p.n_tokens, p.n, p.at))) {
        fuzz_require(plan == NULL, "an error and a plan at once");
        return 0;
    }
    check_plan(plan, &p);
    fuzz_require(wnw_session_copy(&s, from) == WNW_OK, "the session cannot be copied");
    if (fuzz_status(wnw_session_apply(s, plan, NULL))) {
        fuzz_require(p.n_layer == info.n_layer && p.n_head_kv == info.n_head_kv,
                     "a plan of another shape fits");
        check_cache(s, &p);
        go_on(s, &info, fuzz_u8(&in));
    } else {
        fuzz_require(wnw_cache_n(s, 0, 0) == N_TOKENS, "a refused plan changed the cache");
    }
    wnw_session_free(s);
    wnw_plan_free(plan);
    return 0;
}
