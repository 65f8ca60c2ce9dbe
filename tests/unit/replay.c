/* SPDX-License-Identifier: MIT */
/* Replay: the numbers that were worked out by hand, and a plain computation in double precision. */
#include "asserts.h"
#include "fake_source.h"
#include "peek_plan.h"
#include "random.h"
#include "scoring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 96, MAX_H = 4, MAX_D = 8 };

/* A layer of G KV heads with 2 query heads each; keys and queries after RoPE. */
struct layer {
    wnw_observation obs; /* the first member, because `keys` gets its address */
    float key[MAX_H / 2][MAX_N][MAX_D];
    float query[MAX_N * MAX_H * MAX_D];
    float theta[MAX_D / 2];
    int32_t n_entry[MAX_H / 2], pos[MAX_H / 2 * MAX_N];
    float row[MAX_N * MAX_D];
};

static const float *keys(const wnw_observation *obs, int32_t ih)
{
    struct layer *l = obs->source;
    for (int32_t i = 0; i < obs->n; i++)
        memcpy(l->row + i * obs->n_embd_head, l->key[ih][i], (size_t)obs->n_embd_head * sizeof(float));
    return l->row;
}

/* x[d] turned by pos; pairs are (i, i + d / 2). */
static void turn(const struct layer *l, const double *x, double pos, double *out)
{
    const int32_t half = l->obs.n_rot / 2;
    for (int32_t i = 0; i < half; i++) {
        const double c = cos(pos * (double)l->theta[i]), s = sin(pos * (double)l->theta[i]);
        out[i] = c * x[i] - s * x[i + half];
        out[i + half] = s * x[i] + c * x[i + half];
    }
    for (int32_t i = 2 * half; i < l->obs.n_embd_head; i++)
        out[i] = x[i];
}

static void describe(struct layer *l, int32_t n_head_kv, int32_t d, int32_t n)
{
    l->obs = (wnw_observation){.n_layer = 1,
                               .n_head = 2 * n_head_kv,
                               .n_head_kv = n_head_kv,
                               .n_embd_head = d,
                               .n = n,
                               .n_past = n,
                               .n_entry = l->n_entry,
                               .pos = l->pos,
                               .attn_scale = 1 / sqrtf((float)d),
                               .keys = keys,
                               .queries = l->query,
                               .n_queries = n,
                               .rope_theta = l->theta,
                               .n_rot = d,
                               .rope_neox = true,
                               .source = l};
}

/* Products are those of rows whose elements are off by up to half of length / 32000: a logit is off by at most this, and the
 * logarithm of a sum of exponentials as much. */
static double rounding(const struct layer *l)
{
    const int32_t d = l->obs.n_embd_head;
    double longest[2] = {0};
    for (int32_t ih = 0; ih < l->obs.n_head_kv; ih++)
        for (int32_t e = 0; e < l->n_entry[ih]; e++) {
            double square = 0;
            for (int32_t c = 0; c < d; c++)
                square += (double)l->key[ih][e][c] * (double)l->key[ih][e][c];
            longest[0] = fmax(longest[0], square);
        }
    for (int32_t i = 0; i < l->obs.n_past * l->obs.n_head; i++) {
        double square = 0;
        for (int32_t c = 0; c < d; c++)
            square += (double)l->query[i * d + c] * (double)l->query[i * d + c];
        longest[1] = fmax(longest[1], square);
    }
    return sqrt(longest[0] * longest[1]) * sqrt(d) / 32000 * (double)l->obs.attn_scale;
}

static void assert_score(const struct layer *l, double score, double want)
{
    assert_near(score, want, want * expm1(2 * rounding(l)) + 2e-6);
}

/* ---- By hand ---- */

/* One KV head, d = 2, angle = position: chapter 25's numbers. */
static void numbers_by_hand(void **state)
{
    (void)state;
    static const double q[2][4][2] = {{{1, 0}, {0, 1}, {2, 0}, {1, 1}}, {{0, 1}, {1, -1}, {0, 2}, {-1, 0}}};
    static const double k[4][2] = {{1, 1}, {2, 0}, {0, 1}, {-1, 1}};
    static const struct {
        const char *recipe;
        double want[2][3]; /* of query heads; then their maximum is 0.517637 0.211625 0.399286 and so on */
    } rows[] = {
        {"replay:gap=2,form=exact", {{0.517637, 0.211625, 0.064839}, {0.239928, 0.162584, 0.399286}}},
        {"replay:gap=2,m=2,m_keys=2,band=0", {{0.458641, 0.211625, 0.064839}, {0, 0.136873, 0.399286}}},
    };
    static const double most[2][3] = {{0.517637, 0.211625, 0.399286}, {0.463086, 0.211625, 0.399286}};
    struct layer l = {.theta = {1}, .n_entry = {4}, .pos = {0, 1, 2, 3}};
    describe(&l, 1, 2, 4);
    l.obs.n_prefix = 1;
    for (int32_t t = 0; t < 4; t++) {
        double x[2];
        turn(&l, k[t], t, x);
        l.key[0][t][0] = (float)x[0];
        l.key[0][t][1] = (float)x[1];
        for (int32_t h = 0; h < 2; h++) {
            turn(&l, q[h][t], t, x);
            l.query[(t * 2 + h) * 2] = (float)x[0];
            l.query[(t * 2 + h) * 2 + 1] = (float)x[1];
        }
    }
    for (int i = 0; i < 2; i++) {
        float score[2 * 4];
        assert_ok(try_scores(rows[i].recipe, &l.obs, score));
        for (int32_t c = 1; c < 4; c++) {
            assert_score(&l, (double)fmaxf(score[c], score[4 + c]), most[i][c - 1]);
            if (i == 0)
                for (int32_t h = 0; h < 2; h++)
                    assert_score(&l, (double)score[h * 4 + c], rows[i].want[h][c - 1]);
        }
        assert_cmp(score[0], ==, 1.0f); /* the header stays */
    }
}

/* ---- A plain computation ---- */

struct form {
    int32_t shift, stride, key_stride, band; /* stride 1 and band < 0: exact */
};

static double logit(const struct layer *l, int32_t h, int32_t t, int32_t e, double back)
{
    const int32_t d = l->obs.n_embd_head, ih = h / 2;
    const float *q = l->query + ((t - (l->obs.n_past - l->obs.n_queries)) * l->obs.n_head + h) * d;
    double k[MAX_D] = {0}, r[MAX_D], sum = 0;
    for (int32_t i = 0; i < d; i++)
        k[i] = (double)l->key[ih][e][i];
    turn(l, k, -back, r);
    for (int32_t i = 0; i < d; i++)
        sum += (double)q[i] * r[i];
    return sum * (double)l->obs.attn_scale;
}

/* score[n] of query head h. */
static void plain(const struct layer *l, const struct form *f, int32_t h, double *score)
{
    const int32_t n = l->n_entry[h / 2], n_p = l->obs.n_prefix;
    const int32_t *pos = l->pos + h / 2 * l->obs.n, known = l->obs.n_past - l->obs.n_queries;
    const int32_t first = known > n_p ? known : n_p;
    int32_t n_head = 0;
    while (n_head < n && pos[n_head] < n_p)
        n_head++;
    for (int32_t e = 0; e < n; e++)
        score[e] = e < n_head ? 1 : 0;
    for (int32_t t = first; t < l->obs.n_past; t++) {
        double all = 0, near = 0;
        for (int32_t e = 0; e < n; e++) {
            const double both = exp(logit(l, h, t, e, f->shift)) +
                                (e >= n_head && pos[e] <= t ? exp(logit(l, h, t, e, 0)) : 0);
            const bool in_band = e >= n_head && abs(pos[e] - t) <= f->band;
            all += both;
            near += e < n_head || in_band               ? both
                    : (e - n_head) % f->key_stride == 0 ? f->key_stride * both
                                                        : 0;
        }
        for (int32_t e = n_head; e < n; e++) {
            const double p = exp(logit(l, h, t, e, f->shift));
            if ((t - first) % f->stride == 0)
                score[e] = fmax(score[e], p / all);
            if (abs(pos[e] - t) <= f->band)
                score[e] = fmax(score[e], fmin(1, p / near));
        }
    }
}

/* A random layer of n tokens; kept: share of the entries that are there. */
static void make(struct layer *l, int32_t n, int32_t n_prefix, double kept, uint64_t seed)
{
    uint64_t s = seed;
    int32_t longest = 0;
    describe(l, 2, MAX_D, n);
    l->obs.n_prefix = n_prefix;
    for (int32_t i = 0; i < MAX_D / 2; i++)
        l->theta[i] = powf(100.0f, -2.0f * (float)i / MAX_D);
    for (int32_t i = 0; i < MAX_N * MAX_H * MAX_D; i++)
        l->query[i] = (float)(test_random(&s) % 4001) / 1000.0f - 2;
    for (int32_t ih = 0; ih < 2; ih++) {
        int32_t m = 0;
        for (int32_t p = 0; p < n; p++)
            if ((double)(test_random(&s) % 1000) < 1000 * kept)
                l->pos[ih * n + m++] = p;
        l->n_entry[ih] = m;
        longest = m > longest ? m : longest;
        for (int32_t e = m; e < n; e++)
            l->pos[ih * n + e] = -1;
        for (int32_t e = 0; e < MAX_N; e++)
            for (int32_t i = 0; i < MAX_D; i++)
                l->key[ih][e][i] = e < m ? (float)(test_random(&s) % 4001) / 1000.0f - 2 : 1e9f;
    }
}

static void reversed(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user), void *user)
{
    (void)obs;
    for (int32_t i = n; i-- > 0;)
        work(i, user);
}

static const struct case_row {
    const char *name, *recipe;
    int32_t n, n_prefix, n_queries; /* n_queries 0 = all */
    double kept;
    int32_t n_ctx_train;
    struct form form;
} case_rows[] = {
    {"exact", "replay:form=exact,gap=5", 61, 7, 0, 1, 0, {59, 1, 1, -1}},
    {"sparse", "replay:gap=5,m=9,m_keys=6", 61, 7, 0, 1, 0, {59, 6, 9, 2}},
    {"sparse, no neighbourhood", "replay:gap=0,m=5,m_keys=5,band=0", 61, 7, 0, 1, 0, {54, 11, 11, 0}},
    {"sparse, wide", "replay:m=64,m_keys=64,band=20", 80, 3, 0, 1, 0, {90, 2, 2, 20}},
    {"fewer tokens than samples", "replay", 40, 3, 0, 1, 0, {50, 1, 1, 2}},
    {"a shift of its own", "replay:shift=17,m=9,m_keys=6", 61, 7, 0, 1, 0, {17, 6, 9, 2}},
    {"the trained context ends", "replay:form=exact,gap=5", 61, 7, 0, 1, 71, {10, 1, 1, -1}},
    {"entries are gone", "replay:m=9,m_keys=6,gap=5", 61, 7, 0, 0.5, 0, {59, 6, 0, 2}},
    {"only the newest queries", "replay:m=9,m_keys=6,gap=5", 61, 7, 20, 0.6, 0, {59, 3, 0, 2}},
    {"hardly an entry is left", "replay:form=exact,gap=5", 61, 7, 61, 0.1, 0, {59, 1, 1, -1}},
};

static void as_plain(void **state)
{
    const struct case_row *row = *state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        static struct layer l;
        float score[MAX_H * MAX_N], again[MAX_H * MAX_N];
        make(&l, row->n, row->n_prefix, row->kept, seed);
        l.obs.n_ctx_train = row->n_ctx_train;
        if (row->n_queries > 0)
            l.obs.n_queries = row->n_queries;
        assert_ok(try_scores(row->recipe, &l.obs, score));
        l.obs.each = reversed;
        assert_ok(try_scores(row->recipe, &l.obs, again));
        assert_memory_equal(score, again, (size_t)(MAX_H * row->n) * sizeof *score);
        for (int32_t h = 0; h < MAX_H; h++) {
            double want[MAX_N];
            struct form f = row->form;
            int32_t n_head = 0, n = l.n_entry[h / 2];
            while (n_head < n && l.pos[h / 2 * row->n + n_head] < row->n_prefix)
                n_head++;
            if (f.key_stride == 0) /* of what is left after the header */
                f.key_stride = n > n_head ? (n - n_head - 1) / 6 + 1 : 1;
            plain(&l, &f, h, want);
            for (int32_t e = 0; e < n; e++)
                assert_score(&l, (double)score[h * row->n + e], want[e]);
            for (int32_t e = n; e < row->n; e++)
                assert_cmp(score[h * row->n + e], ==, 0.0f);
        }
    }
}

/* Without a shift and with all queries the scores are the column maxima of the attention to the text and, once more, to
 * what comes before each query. */
static void column_maxima(void **state)
{
    (void)state;
    static struct layer l;
    enum { N = 50 };
    float score[MAX_H * N];
    make(&l, N, 0, 1, 9);
    assert_ok(try_scores("replay:shift=0,form=exact,sinks=0", &l.obs, score));
    for (int32_t h = 0; h < MAX_H; h++) {
        double most[N] = {0};
        for (int32_t t = 0; t < N; t++) {
            double sum = 0;
            for (int32_t c = 0; c < N; c++)
                sum += exp(logit(&l, h, t, c, 0)) * (c <= t ? 2 : 1);
            for (int32_t c = 0; c < N; c++)
                most[c] = fmax(most[c], exp(logit(&l, h, t, c, 0)) / sum);
        }
        for (int32_t c = 0; c < N; c++)
            assert_score(&l, (double)score[h * N + c], most[c]);
    }
}

/* Heads whose scores are not used are not computed; sinks take the place of an unknown header. */
static void heads_and_sinks(void **state)
{
    (void)state;
    static struct layer l;
    static const bool used[MAX_H] = {true, false, true, true};
    float all[MAX_H * 30], some[MAX_H * 30];
    make(&l, 30, 0, 1, 4);
    assert_ok(try_scores("replay:sinks=3", &l.obs, all));
    l.obs.query_head_used = used;
    assert_ok(try_scores("replay:sinks=3", &l.obs, some));
    for (int32_t h = 0; h < MAX_H; h++)
        for (int32_t c = 0; c < 30; c++)
            assert_cmp(some[h * 30 + c], ==, c < 3 ? 1.0f : used[h] ? all[h * 30 + c] : 0.0f);
}

static void refuses(void **state)
{
    (void)state;
    static struct layer l;
    float score[MAX_H * 30];
    make(&l, 30, 0, 1, 4);
    l.obs.n_ctx_train = 29;
    assert_error(try_scores("replay", &l.obs, score), WNW_E_RANGE);
    assert_says("30 tokens and the model was trained for 29");
    l.obs.n_ctx_train = 30; /* the last that fits is replayed in its place */
    assert_ok(try_scores("replay", &l.obs, score));
}

static void phases(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        bool layer, chunk, decode;
    } rows[] = {{"replay", false, true, false},
                {"replay+equal", true, true, false},
                {"replay+adakv", true, true, false},
                {"replay+shares", true, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].recipe);
        assert_int_equal(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL), rows[i].layer);
        assert_int_equal(wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL), rows[i].chunk);
        assert_int_equal(wnw_policy_allows(p, WNW_PHASE_DECODE, NULL), rows[i].decode);
        wnw_policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_by_hand), cmocka_unit_test(column_maxima), cmocka_unit_test(heads_and_sinks),
        cmocka_unit_test(refuses),         cmocka_unit_test(phases),
    };
    return run_rows(as_plain, case_rows) + cmocka_run_group_tests(tests, NULL, NULL);
}
