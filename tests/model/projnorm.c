/* SPDX-License-Identifier: MIT */
/* Projected norms of a session: the model's own weights, and norms that move with their entries. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOK = 90, N_MORE = 7 };

/* Norms of layer il, [n_head_kv][n]; *obs stays valid as long as the source. */
static const float *observe(const struct wnw__plan_source *src, int32_t il, wnw_proj_norm kind,
                            wnw_observation *obs)
{
    const wnw_needs needs = {.flags = WNW_NEED_PROJ_NORM | WNW_NEED_VALUES};
    assert_ok(src->observe(src, il, &needs, NULL, obs));
    assert_non_null(obs->proj_norm);
    const float *norm = obs->proj_norm(obs, kind);
    assert_non_null(norm);
    return norm;
}

static void check_layer(const wnw_model *m, const struct wnw__plan_source *src, int32_t il,
                        wnw_proj_norm kind)
{
    wnw_observation obs;
    const float *norm = observe(src, il, kind, &obs);
    const struct ggml_tensor *wo = wnw__model_original(m, m->layers[il].wo);
    assert_int_equal(wo->ne[0], obs.n_head * obs.n_embd_head);
    const struct wnw__proj_weight w = {.type = wo->type,
                                       .data = wo->data,
                                       .n_head = obs.n_head,
                                       .n_head_kv = obs.n_head_kv,
                                       .d = obs.n_embd_head,
                                       .n_out = (int32_t)wo->ne[1]};
    for (int32_t ih = 0; ih < obs.n_head_kv; ih++) {
        const float *v = obs.values(&obs, ih);
        for (int32_t i = 0; i < obs.n; i += 5) {
            const double got = (double)norm[ih * obs.n + i];
            const double want = i < obs.n_entry[ih]
                                    ? wnw__proj_norm_ref(&w, ih, kind, v + (int64_t)i * obs.n_embd_head)
                                    : 0.0;
            if (!(fabs(got - want) <= test_rounding(1e-5, 2) * want))
                fail_msg("layer %d, head %d, entry %d, kind %d: %g, expected %g", (int)il, (int)ih, (int)i,
                         (int)kind, got, want);
        }
    }
}

/* The same of every query head: a group of its own in the reference. */
static void check_query_heads(const wnw_model *m, const struct wnw__plan_source *src, int32_t il,
                              wnw_proj_norm kind)
{
    wnw_observation obs;
    (void)observe(src, il, kind, &obs);
    const float *norm = obs.head_proj_norm(&obs, kind);
    assert_non_null(norm);
    const struct ggml_tensor *wo = wnw__model_original(m, m->layers[il].wo);
    const struct wnw__proj_weight w = {.type = wo->type,
                                       .data = wo->data,
                                       .n_head = obs.n_head,
                                       .n_head_kv = obs.n_head,
                                       .d = obs.n_embd_head,
                                       .n_out = (int32_t)wo->ne[1]};
    const int32_t group = obs.n_head / obs.n_head_kv;
    for (int32_t h = 0; h < obs.n_head; h++) {
        const float *v = obs.values(&obs, h / group);
        for (int32_t i = 0; i < obs.n_entry[h / group]; i += 5) {
            const double got = (double)norm[h * obs.n + i];
            const double want = wnw__proj_norm_ref(&w, h, kind, v + (int64_t)i * obs.n_embd_head);
            if (!(fabs(got - want) <= test_rounding(1e-5, 2) * want))
                fail_msg("layer %d, query head %d, entry %d, kind %d: %g, expected %g", (int)il, (int)h,
                         (int)i, (int)kind, got, want);
        }
    }
}

static wnw_session *session_with(const wnw_model *m, wnw_kv_type kv_type, const wnw_policy *p,
                                 const int32_t *tokens)
{
    return test_session_read(m, &(struct test_session){.kv_type = kv_type}, p, tokens, N_TOK);
}

static void every_family(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    wnw_policy *p = test_policy("snapkv:window=8+adakv");
    for (int i = 0; i < n; i++) {
        wnw_model *m = test_model_open(names[i]);
        int32_t *tokens = test_random_tokens(N_TOK, m->hp.n_vocab, 7);
        wnw_session *s = session_with(m, i % 2 ? WNW_KV_Q8_0 : WNW_KV_F16, p, tokens);
        struct wnw__plan_source src;
        assert_ok(wnw__session_source(&src, s));
        for (int32_t il = 0; il < m->hp.n_layer; il++)
            for (int kind = 0; kind < WNW_N_PROJ_NORMS; kind++) {
                check_layer(m, &src, il, (wnw_proj_norm)kind);
                check_query_heads(m, &src, il, (wnw_proj_norm)kind);
            }
        wnw__source_close(&src);
        wnw_session_free(s);
        free(tokens);
        wnw_model_free(m);
    }
    wnw_policy_free(p);
}

/* All norms of a kind, layers one after the other, padding left out. */
static float *all_norms(wnw_session *s, wnw_proj_norm kind, int32_t *n)
{
    const int64_t total = wnw__cache_entries(&s->cache);
    float *all = malloc((size_t)total * sizeof *all);
    struct wnw__plan_source src;
    assert_non_null(all);
    assert_ok(wnw__session_source(&src, s));
    *n = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        wnw_observation obs;
        const float *norm = observe(&src, il, kind, &obs);
        for (int32_t ih = 0; ih < obs.n_head_kv; ih++) {
            memcpy(all + *n, norm + (size_t)ih * (size_t)obs.n, (size_t)obs.n_entry[ih] * sizeof *norm);
            *n += obs.n_entry[ih];
        }
    }
    wnw__source_close(&src);
    assert_int_equal(*n, total);
    return all;
}

/* What moved with the entries is what the entries give now, bit for bit. */
static void check_kept(wnw_session *s, wnw_proj_norm kind)
{
    int32_t n, n_again;
    float *kept = all_norms(s, kind, &n);
    assert_ok(wnw__cache_set_aux(&s->cache, WNW_AUX_PROJ + kind, 0));
    float *again = all_norms(s, kind, &n_again);
    assert_int_equal(n, n_again);
    assert_memory_equal(kept, again, (size_t)n * sizeof *kept);
    free(kept);
    free(again);
}

/* Marks all computed norms, so that it shows whether they are computed again. */
static void mark(wnw_session *s, wnw_proj_norm kind)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        const struct wnw__kv_layer *l = &s->cache.layers[il];
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++)
            for (int32_t i = 0; i < l->len[ih]; i++)
                wnw__cache_aux(l, WNW_AUX_PROJ + kind, 0)[l->off[ih] + i] += 1000.0f;
    }
}

static void norms_move_with_entries(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "qwen3");
    wnw_model *m = test_model_open(name);
    int32_t *tokens = test_random_tokens(N_TOK + N_MORE, m->hp.n_vocab, 9);
    wnw_policy *p = test_policy("snapkv:window=8+adakv");
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.6};
    for (int k = 0; k < WNW_N_PROJ_NORMS; k++) {
        const wnw_proj_norm kind = (wnw_proj_norm)k;
        wnw_session *s = session_with(m, WNW_KV_F16, p, tokens), *copy;
        int32_t n;
        float *before = all_norms(s, kind, &n);
        free(before);
        assert_ok(wnw_session_compress(s, p, &size, NULL));
        check_kept(s, kind);
        mark(s, kind);
        assert_ok(wnw_session_copy(&copy, s));
        test_prefill(copy, tokens + N_TOK, N_MORE);
        float *now = all_norms(copy, kind, &n);
        int32_t n_new = 0;
        for (int32_t i = 0; i < n; i++)
            n_new += now[i] < 1000.0f;
        assert_int_equal(n_new, N_MORE * m->hp.n_layer * m->hp.n_head_kv); /* only these are computed */
        free(now);
        assert_ok(wnw__cache_set_aux(&copy->cache, WNW_AUX_PROJ + kind, 0));
        check_kept(copy, kind);
        wnw_session_free(copy);
        assert_ok(test_observe(s, NULL, 0)); /* nobody asks for them any more */
        assert_int_equal(s->cache.aux_planes[WNW_AUX_PROJ + kind], 0);
        wnw_session_free(s);
    }
    wnw_policy_free(p);
    free(tokens);
    wnw_model_free(m);
}

static void repacking_does_not_matter(void **state)
{
    (void)state;
    char path[4096];
    float *norms[2];
    int32_t n[2];
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    test_model_path(path, sizeof path, "tiny/tiny-llama-q4_0.gguf");
    for (int repack = 0; repack < 2; repack++) {
        wnw_model *m;
        assert_ok(
            wnw_model_open(&m, path, &(wnw_model_params){WNW_INIT(wnw_model_params), .repack = repack}));
        wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F32});
        test_prefill(s, tokens, 8);
        /* The values themselves depend on the products' rounding: use the same ones. */
        for (int32_t il = 0; il < s->cache.n_layer; il++) {
            const struct wnw__kv_layer *l = &s->cache.layers[il];
            for (int64_t i = 0; i < l->n_rows * s->cache.d; i++)
                ((float *)(void *)l->v)[i] = (float)(i % 37) - 18.0f;
        }
        norms[repack] = all_norms(s, WNW_PROJ_L1, &n[repack]);
        wnw_session_free(s);
        wnw_model_free(m);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(norms[0], norms[1], (size_t)n[0] * sizeof *norms[0]);
    free(norms[0]);
    free(norms[1]);
}

static void unknown_kind(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F32});
    test_prefill(s, (const int32_t[]){1, 2, 3}, 3);
    struct wnw__plan_source src;
    wnw_observation obs;
    assert_ok(wnw__session_source(&src, s));
    observe(&src, 0, WNW_PROJ_L2, &obs);
    assert_null(obs.proj_norm(&obs, (wnw_proj_norm)WNW_N_PROJ_NORMS));
    assert_says("does not exist");
    wnw__source_close(&src);
    wnw_session_free(s);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(norms_move_with_entries),
        cmocka_unit_test(repacking_does_not_matter),
        cmocka_unit_test(unknown_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
