/* SPDX-License-Identifier: MIT */
/* Lists of recorders, and those of queries, on plain arrays. */
#include "helpers.h"
#include "peek_session.h"

#include <stdlib.h>
#include <string.h>

enum { N_LAYER = 2, N_HEAD = 3, D = 4, ROW = N_HEAD * D, MOST = 64 };

static const struct wnw__record_shape shape = {
    .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = 1, .d = D},
    .n_ctx = MOST,
    .n_ubatch = MOST,
    .n_threads = 2,
    .q_scale = 1};

/* The query at a position of a layer: numbers that occur nowhere else. */
static void query_at(int32_t il, int32_t pos, float q[ROW])
{
    for (int32_t i = 0; i < ROW; i++)
        q[i] = (float)((il * MOST + pos) * ROW + i);
}

/* n tokens through both layers, taken by nth threads. */
static void read_tokens(const struct wnw__recorders *r, int32_t n_past, int32_t n, bool generated, int nth)
{
    static float q[MOST * ROW];
    const struct wnw__record_pass pass = {.to = N_LAYER, .n_past = n_past, .n = n, .generated = generated};
    assert_ok(wnw__recorders_reserve(r, &pass));
    for (int32_t il = 0; il < N_LAYER; il++) {
        const int n_stage = wnw__recorders_stages(r, WNW_POINT_ATTENTION, il, &pass);
        for (int32_t t = 0; t < n; t++)
            query_at(il, n_past + t, q + t * ROW);
        for (int stage = 0; stage < n_stage; stage++)
            for (int ith = 0; ith < nth; ith++)
                wnw__recorders_take(r,
                                    &(struct wnw__record_rows){.pass = &pass,
                                                               .point = WNW_POINT_ATTENTION,
                                                               .il = il,
                                                               .stage = stage,
                                                               .q = q,
                                                               .token_stride = ROW,
                                                               .head_stride = D},
                                    ith, nth);
    }
    wnw__recorders_commit(r, &pass);
}

static struct wnw__record_needs needs_of(uint32_t flags, int32_t window)
{
    return (struct wnw__record_needs){.merged = {.flags = flags, .window = window}};
}

/* Positions end - n .. end - 1 of both layers are there. */
static void check_window(const struct wnw__window *w, int32_t n, int32_t end)
{
    for (int32_t il = 0; il < N_LAYER; il++) {
        assert_int_equal(w->layers[il].n, n);
        assert_int_equal(w->layers[il].end, end);
        for (int32_t pos = end - n; pos < end; pos++) {
            float want[ROW];
            query_at(il, pos, want);
            assert_memory_equal(wnw__window_at(w, il, pos), want, sizeof want);
        }
    }
}

static void window_is_a_ring(void **state)
{
    (void)state;
    for (int generated = 0; generated < 2; generated++) {
        struct wnw__recorders r = {0}, copy = {0};
        const struct wnw__record_arg arg = {.n = 5, .generated = generated};
        assert_ok(wnw__recorders_open(&r, &wnw__window_recorder, &arg, &shape));
        const struct wnw__window *w = wnw__recorders_find(&r, &wnw__window_recorder);
        read_tokens(&r, 0, 3, false, 1);
        check_window(w, 3, 3);
        read_tokens(&r, 3, 13, false, 3); /* more than it holds */
        check_window(w, 5, 16);
        read_tokens(&r, 16, 1, false, 2);
        check_window(w, 5, 17);
        assert_ok(wnw__recorders_copy(&copy, &r, &shape));
        read_tokens(&r, 17, 1, true, 1);
        check_window(w, 5, generated ? 18 : 17);
        check_window(wnw__recorders_find(&copy, &wnw__window_recorder), 5, 17);
        read_tokens(&r, 18, 2, false, 1); /* after a token that was left out, or not */
        check_window(w, generated ? 5 : 2, 20);
        wnw__recorders_tell(&r, 0, N_LAYER, WNW_EVENT_DROPPED);
        check_window(w, generated ? 5 : 2, 20);
        wnw__recorders_tell(&r, 0, N_LAYER, WNW_EVENT_PASS_FAILED); /* the ring may be overwritten in parts */
        check_window(w, 0, 20);
        wnw__recorders_free(&copy);
        wnw__recorders_free(&r);
    }
}

static void check_queries(const struct wnw__token_rows *k, int32_t n, int32_t end)
{
    for (int32_t il = 0; il < N_LAYER; il++) {
        assert_int_equal(k->layers[il].n, n);
        for (int32_t i = 0; i < n; i++) {
            float want[ROW];
            query_at(il, end - n + i, want);
            if (k->type == WNW_KV_F32) {
                assert_memory_equal(wnw__token_rows_at(k, il, i), want, sizeof want);
                continue;
            }
            float got[ROW];
            wnw__rows_to_f32(WNW_KV_F16, wnw__token_rows_at(k, il, i), 1, ROW, got);
            for (int c = 0; c < ROW; c++)
                assert_near(got[c], want[c], fabsf(want[c]) / 2048 + 1e-7f);
        }
    }
}

static void queries_of(wnw_kv_type type)
{
    struct wnw__recorders r = {0};
    const struct wnw__record_pass all = {.to = N_LAYER, .n = 40};
    assert_ok(wnw__recorders_open(&r, &wnw__queries_recorder, &(struct wnw__record_arg){.n = (int32_t)type},
                                  &shape));
    const struct wnw__token_rows *k = wnw__recorders_find(&r, &wnw__queries_recorder);
    assert_ok(wnw__recorders_begin(&r, &all));
    assert_int_equal(k->layers[1].cap, 40); /* room for all of the prompt at once */
    read_tokens(&r, 0, 30, false, 2);
    read_tokens(&r, 30, 10, false, 3);
    check_queries(k, 40, 40);
    assert_int_equal(k->layers[1].cap, 40);
    read_tokens(&r, 40, 1, true, 1);
    check_queries(k, 40, 40); /* generated tokens are left out */
    read_tokens(&r, 41, 7, false, 1);
    check_queries(k, 7, 48); /* and end the row */
    wnw__recorders_tell(&r, 0, 1, WNW_EVENT_DROPPED);
    assert_null(k->layers[0].q);
    assert_int_equal(k->layers[1].n, 7);
    wnw__recorders_free(&r);
}

static void queries_follow_one_another(void **state)
{
    (void)state;
    queries_of(WNW_KV_F32);
    queries_of(WNW_KV_F16);
}

/* One recorder takes in one stage what another takes in two. */
static int two_stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    (void)pass;
    return point == WNW_POINT_ATTENTION ? 2 : 0;
}
static void count_stages(void *rec, const struct wnw__record_rows *rows, int ith, int nth)
{
    (void)ith;
    (void)nth;
    ((int *)rec)[rows->stage]++;
}
static void nothing(void *rec)
{
    (void)rec;
}

static void stages_are_counted_per_recorder(void **state)
{
    (void)state;
    static const struct wnw__recorder_type type = {
        .name = "two stages", .stages = two_stages, .take = count_stages, .free = nothing};
    struct wnw__recorders r = {0};
    int taken[2] = {0};
    assert_ok(wnw__recorders_open(&r, &wnw__window_recorder, &(struct wnw__record_arg){.n = 4}, &shape));
    assert_ok(wnw__recorders_add(&r, &(struct wnw__recorder){.type = &type, .rec = taken}));
    read_tokens(&r, 0, 3, false, 1);
    assert_int_equal(taken[0], N_LAYER);
    assert_int_equal(taken[1], N_LAYER);
    check_window(wnw__recorders_find(&r, &wnw__window_recorder), 3, 3);
    wnw__recorders_drop(&r, &wnw__window_recorder);
    assert_int_equal(r.n, 1);
    assert_null(wnw__recorders_find(&r, &wnw__window_recorder));
    wnw__recorders_free(&r);
}

static void declarations_replace_one_another(void **state)
{
    (void)state;
    struct wnw__cache cache;
    struct wnw__recorders r = {0};
    const int32_t n_swa[N_LAYER] = {0};
    struct wnw__record_needs needs = needs_of(WNW_NEED_WINDOW_ATTN | WNW_NEED_ATTN_SUM | WNW_NEED_QUERIES, 8);
    assert_ok(wnw__cache_init(&cache, N_LAYER, 1, D, WNW_KV_F32, WNW_CACHE_GROWTH, n_swa));
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    const void *window = wnw__recorders_find(&r, &wnw__window_recorder);
    const void *columns = wnw__recorders_find(&r, &wnw__columns_recorder);
    assert_int_equal(r.n, 3);
    assert_int_equal(cache.aux_planes[WNW_AUX_ATTN_SUM], N_HEAD);
    assert_int_equal(cache.aux_planes[WNW_AUX_ATTN_MAX], 0);
    needs = needs_of(WNW_NEED_WINDOW_ATTN | WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX, 8);
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    assert_int_equal(r.n, 2);
    assert_ptr_equal(wnw__recorders_find(&r, &wnw__window_recorder), window);
    assert_ptr_equal(wnw__recorders_find(&r, &wnw__columns_recorder), columns);
    assert_int_equal(cache.aux_planes[WNW_AUX_ATTN_MAX], N_HEAD);
    needs =
        needs_of(WNW_NEED_WINDOW_ATTN | WNW_NEED_ATTN_MAX, 1000); /* no window is longer than the context */
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    assert_int_equal(((const struct wnw__window *)wnw__recorders_find(&r, &wnw__window_recorder))->cap, MOST);
    assert_int_equal(cache.aux_planes[WNW_AUX_ATTN_SUM], 0);
    /* Queries are rounded unless somebody wants them as they are. */
    needs = needs_of(WNW_NEED_QUERIES_F16, 0);
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    assert_int_equal(((const struct wnw__token_rows *)wnw__recorders_find(&r, &wnw__queries_recorder))->type,
                     WNW_KV_F16);
    needs = needs_of(WNW_NEED_QUERIES_F16 | WNW_NEED_QUERIES, 0);
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    assert_int_equal(r.n, 1);
    assert_int_equal(((const struct wnw__token_rows *)wnw__recorders_find(&r, &wnw__queries_recorder))->type,
                     WNW_KV_F32);
    needs = needs_of(0, 0);
    assert_ok(wnw__recorders_declare(&r, &cache, &needs, &shape));
    assert_int_equal(r.n, 0);
    assert_int_equal(cache.aux_planes[WNW_AUX_ATTN_MAX], 0);
    wnw__recorders_free(&r);
    wnw__cache_free(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_is_a_ring),
        cmocka_unit_test(queries_follow_one_another),
        cmocka_unit_test(stages_are_counted_per_recorder),
        cmocka_unit_test(declarations_replace_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
