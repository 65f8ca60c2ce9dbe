/* SPDX-License-Identifier: MIT */
#include "sessions.h"

#include "logits.h"
#include "peek_session.h"

#include <string.h>

wnw_session *test_session_new(const wnw_model *m, const struct test_session *want)
{
    wnw_session_params p = wnw_session_default_params();
    const int32_t cores = wnw_usable_cores();
    p.kv_type = want->kv_type;
    p.attn = want->attn;
    p.n_ctx = want->n_ctx;
    p.kv_tail = want->kv_tail;
    p.kv_unrotated = want->kv_unrotated;
    if (want->n_ubatch)
        p.n_ubatch = want->n_ubatch;
    p.n_threads = want->n_threads ? want->n_threads : (cores < 2 ? cores : 2);
    wnw_session *s = NULL;
    if (want->engine)
        assert_ok(wnw_session_new_on(&s, want->engine, &p));
    else
        assert_ok(wnw_session_new(&s, m, &p));
    assert_non_null(s);
    return s;
}

int test_observe(wnw_session *s, const wnw_policy *const *policies, int32_t n)
{
    return wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = policies,
                                                                 .n_policies = n}});
}

void test_prefill(wnw_session *s, const int32_t *tokens, int32_t n)
{
    assert_ok(wnw_session_prefill(s, tokens, n, NULL, NULL));
    assert_non_null(wnw_session_logits(s));
}

wnw_session *test_session_read(const wnw_model *m, const struct test_session *want, const wnw_policy *p,
                               const int32_t *tokens, int32_t n)
{
    wnw_session *s = test_session_new(m, want);
    if (p)
        assert_ok(test_observe(s, &p, 1));
    test_prefill(s, tokens, n);
    return s;
}

void test_decode(wnw_session *s, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        assert_ok(wnw_session_decode(s, tokens[i]));
}

void test_batches(wnw_engine *e, wnw_session *const *s, int32_t n, const int32_t *tokens, int32_t n_step,
                  double most)
{
    enum { MOST = 8 };
    wnw_session *alone[MOST];
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_cmp(n, <=, MOST);
    assert_ok(wnw_model_get_info(s[0]->m, &info));
    for (int32_t i = 0; i < n; i++)
        assert_ok(wnw_session_copy(&alone[i], s[i]));
    for (int32_t k = 0; k < n_step; k++) {
        assert_ok(wnw_decode_batch(e, s, tokens + k, n));
        for (int32_t i = 0; i < n; i++)
            assert_ok(wnw_session_decode(alone[i], tokens[k + i]));
    }
    for (int32_t i = 0; i < n; i++) {
        struct test_diff d = {0};
        test_diff_add(&d, wnw_session_logits(alone[i]), wnw_session_logits(s[i]), info.n_vocab);
        assert_cmp(test_diff_nmse(&d), <, most);
        wnw_session_free(alone[i]);
    }
}

/* ---- What sessions hold ---- */

static void other_head(int32_t il, int32_t ih, const char *what, const char *file, int line)
{
    print_error("layer %d, head %d: other %s\n", il, ih, what);
    _fail(file, line);
}

/* Entries 0 .. n-1 of a head have the same bytes, in the same types. */
static bool same_rows(const wnw_session *a, const wnw_session *b, int32_t il, int32_t ih, int32_t n, bool key)
{
    for (int32_t i = 0; i < n;) {
        const struct wnw__kv_rows x = wnw__cache_rows(&a->cache, &a->cache.layers[il], ih, i, n),
                                  y = wnw__cache_rows(&b->cache, &b->cache.layers[il], ih, i, n);
        const int32_t both = x.n < y.n ? x.n : y.n;
        if (x.type != y.type || memcmp(key ? x.k : x.v, key ? y.k : y.v, (size_t)both * x.row_bytes) != 0)
            return false;
        i += both;
    }
    return true;
}

void test_caches(const wnw_session *a, const wnw_session *b, bool bytes, const char *file, int line)
{
    test_int_equal(wnw_session_n_past(a), wnw_session_n_past(b), "tokens read by one", "by the other", file,
                   line);
    for (int32_t il = 0; il < a->cache.n_layer; il++)
        for (int32_t ih = 0; ih < a->cache.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(a, il, ih);
            if (n != wnw_cache_n(b, il, ih)) {
                print_error("layer %d, head %d: %d and %d entries\n", il, ih, n, wnw_cache_n(b, il, ih));
                _fail(file, line);
            }
            if (n == 0)
                continue;
            test_same_ints(wnw_cache_positions(a, il, ih), wnw_cache_positions(b, il, ih),
                           (size_t)n * sizeof(int32_t), "the positions", file, line);
            if (bytes && !same_rows(a, b, il, ih, n, true))
                other_head(il, ih, "keys", file, line);
            if (bytes && !same_rows(a, b, il, ih, n, false))
                other_head(il, ih, "values", file, line);
        }
}

void test_logits(const wnw_session *a, const wnw_session *b, const char *file, int line)
{
    const float *x = wnw_session_logits(a), *y = wnw_session_logits(b);
    if (!x || !y) {
        print_error("%s session has no logits\n", x ? "the second" : "the first");
        _fail(file, line);
    }
    test_same_floats(x, y, (size_t)a->m->hp.n_vocab * sizeof *x, "the logits", file, line);
}

void test_read_row(const wnw_session *s, bool key, int32_t il, int32_t ih, int32_t i, float *out)
{
    wnw__cache_read(&s->cache, il, key ? WNW_KEYS : WNW_VALUES, ih, i, 1, out);
}

double test_mean_entries(const wnw_session *s)
{
    int64_t sum = 0, heads = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && !wnw_model_layer_is_swa(s->m, il); ih++, heads++)
            sum += wnw_cache_n(s, il, ih);
    return heads ? (double)sum / (double)heads : 0;
}
