/* SPDX-License-Identifier: MIT */
#include "fake_source.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "winnow_calibrate.h"

enum buffer {
    BUF_WINDOW,
    BUF_KEYS,
    BUF_VALUES,
    BUF_SUM,
    BUF_MAX,
    BUF_PASS2_SUM,
    BUF_PASS2_MAX,
    BUF_PROJ, /* one per kind of norm */
    BUF_MEAN = BUF_PROJ + WNW_N_PROJ_NORMS,
    BUF_COV,
    BUF_QUERIES,
    BUF_WINDOW_QUERIES,
    BUF_INPUT,
    BUF_HEAD_PROJ, /* as BUF_PROJ */
    BUF_NOTE = BUF_HEAD_PROJ + WNW_N_PROJ_NORMS,
};

static const float padding = 1e9f;

static const struct fake *fake_of(const struct wnw__plan_source *src)
{
    return (const struct fake *)src;
}

/* ---- Random numbers that depend on their place alone ---- */

static uint32_t mix(uint32_t h, int64_t x)
{
    h = (h ^ (uint32_t)x ^ (uint32_t)(x >> 32)) * 0x9e3779b1u;
    h ^= h >> 15;
    h *= 0x85ebca77u;
    return h ^ h >> 13;
}

/* Numbers of a field with the same first index. */
static uint32_t series(const struct fake *f, int32_t il, int field, int64_t a)
{
    return mix(mix(mix(f->seed, il), field), a);
}

static float fraction(uint32_t h)
{
    return (float)(h >> 8) / (float)(1u << 24);
}

/* 0 <= x < 1 for one number of a field. */
static float number(const struct fake *f, int32_t il, int field, int64_t a, int64_t b)
{
    return fraction(mix(series(f, il, field, a), b));
}

/* Heavy-tailed and positive, as attention is. */
static float weight(const struct fake *f, int32_t il, int field, int64_t a, int64_t b)
{
    const float x = number(f, il, field, a, b), x4 = x * x * x * x;
    return 0.02f + 20 * x4 * x4;
}

/* ---- Callbacks ---- */

static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct fake *f = fake_of(src);
    return f->pos + ((int64_t)il * src->shape.n_head_kv + ih) * f->n;
}

static struct wnw__plan_layer layer(const struct wnw__plan_source *src, int32_t il)
{
    const struct fake *f = fake_of(src);
    return (struct wnw__plan_layer){.n_entry = f->n_entry[il], .pos = positions(src, il, 0), .off = f->off};
}

static bool progress(const struct wnw__plan_source *src, int32_t il)
{
    return il != fake_of(src)->cancel_after;
}

/* One token fewer than asked for, where that leaves any. */
static int look_ahead(const struct wnw__plan_source *src, int32_t n, double budget, float *queries,
                      int32_t *made)
{
    const struct fake *f = (const struct fake *)src;
    const int64_t row = (int64_t)src->shape.n_head * FAKE_D;
    assert_cmp(budget, >, 0);
    *made = n > 1 ? n - 1 : n;
    for (int32_t il = 0; il < src->shape.n_layer; il++)
        for (int64_t i = 0; i < *made * row; i++)
            queries[il * n * row + i] = 2 * number(f, il, 81, i, 0) - 1;
    return WNW_OK;
}

static int perplexity(const struct wnw__plan_source *src, int32_t window, double *out)
{
    *out = 2 + 20 * (double)number(fake_of(src), -1, 99, window, 0);
    return WNW_OK;
}

static float *buffer(struct fake *f, int which, int64_t n)
{
    free(f->buffers[which]);
    f->buffers[which] = malloc(((size_t)n + 1) * sizeof(float));
    assert_non_null(f->buffers[which]);
    return f->buffers[which];
}

/* A number that values depend on, in addition to their field and layer; last: a size that only some have. */
static uint32_t places(const struct fake *f, int32_t il, int32_t last)
{
    const int32_t *pos = positions(&f->src, il, 0);
    const int64_t n = (int64_t)f->src.shape.n_head_kv * f->n;
    uint32_t h = mix(mix(f->seed, f->src.n_past), last);
    for (int64_t i = 0; i < n; i++)
        h = mix(h, pos[i]);
    return h;
}

/* A layer that is looked at again has the same numbers again, and to copy them is cheaper than to make them. Whether x[n], a new
 * buffer of the layer, has them now; remember() keeps what was made. */
static bool recall(const struct fake *f, int which, int32_t il, int32_t last, float *x, int64_t n)
{
    const struct fake_made *m = &f->made[which][il];
    if (!m->values || m->n != n || m->places != places(f, il, last))
        return false;
    memcpy(x, m->values, (size_t)n * sizeof *x);
    return true;
}

static void remember(struct fake *f, int which, int32_t il, int32_t last, const float *x, int64_t n)
{
    struct fake_made *m = &f->made[which][il];
    free(m->values);
    *m = (struct fake_made){malloc(((size_t)n + 1) * sizeof *x), n, places(f, il, last)};
    assert_non_null(m->values);
    memcpy(m->values, x, (size_t)n * sizeof *x);
}

/* [n_head_kv][n][d] */
static float *make_rows(struct fake *f, int32_t il, int which)
{
    const int32_t n_head = f->src.shape.n_head_kv;
    const int64_t n_all = (int64_t)n_head * f->n * FAKE_D;
    float *rows = buffer(f, which, n_all);
    if (recall(f, which, il, 0, rows, n_all))
        return rows;
    for (int32_t ih = 0; ih < n_head; ih++)
        for (int32_t i = 0; i < f->n; i++)
            for (int32_t c = 0; c < FAKE_D; c++) {
                const int32_t p = positions(&f->src, il, ih)[i];
                rows[((int64_t)ih * f->n + i) * FAKE_D + c] =
                    p < 0 ? padding : 2 * number(f, il, which, ih * FAKE_D + c, p) - 1;
            }
    remember(f, which, il, 0, rows, n_all);
    return rows;
}

static const float *rows_of(const wnw_observation *obs, int which, int32_t ih, int32_t first)
{
    const struct fake *f = obs->source;
    return f->buffers[which] + ((int64_t)ih * f->n + first) * FAKE_D;
}

static const float *keys(const wnw_observation *obs, int32_t ih)
{
    return rows_of(obs, BUF_KEYS, ih, 0);
}

static const float *values(const wnw_observation *obs, int32_t ih)
{
    return rows_of(obs, BUF_VALUES, ih, 0);
}

static const float *key_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    assert_cmp(first, >=, 0);
    assert_cmp(count, >=, 0);
    assert_cmp(first + count, <=, obs->n);
    return rows_of(obs, BUF_KEYS, ih, first);
}

static const float *value_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    assert_cmp(first, >=, 0);
    assert_cmp(count, >=, 0);
    assert_cmp(first + count, <=, obs->n);
    return rows_of(obs, BUF_VALUES, ih, first);
}

/* [n_head][n_window][n]: rows sum to 1 over what is visible. */
static void fill_window(struct fake *f, int32_t il, int32_t n_window, float *a)
{
    const int32_t n_head = f->src.shape.n_head, group = n_head / f->src.shape.n_head_kv;
    for (int32_t h = 0; h < n_head; h++) {
        const int32_t *pos = positions(&f->src, il, h / group);
        float *first = a + (int64_t)h * n_window * f->n;
        for (int32_t w = n_window - 1; w >= 0; w--) { /* the first row last: it holds what they share */
            const int32_t query = f->src.n_past - n_window + w;
            const uint32_t own = series(f, il, 50, h * 65536 + query);
            float *row = first + (int64_t)w * f->n;
            double sum = 0;
            for (int32_t i = 0; i < f->n; i++) {
                if (w == n_window - 1) /* what the head cares about */
                    first[i] = weight(f, il, BUF_WINDOW, h, pos[i]);
                row[i] = pos[i] < 0       ? padding
                         : pos[i] > query ? 0
                                          : first[i] * (0.5f + fraction(mix(own, pos[i])));
                sum += pos[i] < 0 ? 0 : (double)row[i];
            }
            for (int32_t i = 0; i < f->n; i++)
                if (pos[i] >= 0 && sum > 0)
                    row[i] = (float)((double)row[i] / sum);
        }
    }
}

static const float *make_window(struct fake *f, int32_t il, int32_t n_window)
{
    const int64_t n_all = (int64_t)f->src.shape.n_head * n_window * f->n;
    float *a = buffer(f, BUF_WINDOW, n_all);
    if (!recall(f, BUF_WINDOW, il, n_window, a, n_all)) {
        fill_window(f, il, n_window, a);
        remember(f, BUF_WINDOW, il, n_window, a, n_all);
    }
    if (f->poison)
        a[0] = NAN;
    return a;
}

/* [n_head][n]: of `queries` queries, or of all since the entry was read; the maximum is at least the mean. */
static const float *make_received(struct fake *f, int32_t il, int which, int queries, bool maximum)
{
    const int32_t n_head = f->src.shape.n_head, group = n_head / f->src.shape.n_head_kv;
    float *a = buffer(f, which, (int64_t)n_head * f->n);
    for (int32_t h = 0; h < n_head; h++)
        for (int32_t i = 0; i < f->n; i++) {
            const int32_t p = positions(&f->src, il, h / group)[i];
            const int field = queries ? BUF_PASS2_SUM : BUF_SUM;
            const float mean = p < 0 ? 0 : weight(f, il, field, h, p) / 60;
            const float n = (float)(queries ? queries : f->src.n_past - p);
            const float top = mean + (1 - mean) * number(f, il, field + 60, h, p) * 0.2f;
            a[(int64_t)h * f->n + i] = p < 0 ? padding : maximum ? top : mean * n;
        }
    return a;
}

static const float *proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    struct fake *f = obs->source;
    const int32_t n_head = f->src.shape.n_head_kv;
    float *a = buffer(f, BUF_PROJ + (int)kind, (int64_t)n_head * f->n);
    for (int32_t ih = 0; ih < n_head; ih++)
        for (int32_t i = 0; i < f->n; i++) {
            const int32_t p = positions(&f->src, obs->il, ih)[i];
            a[(int64_t)ih * f->n + i] =
                p < 0 ? padding : 0.2f + 3 * number(f, obs->il, BUF_PROJ + (int)kind, ih, p);
        }
    return a;
}

static const float *head_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    struct fake *f = obs->source;
    const int which = BUF_HEAD_PROJ + (int)kind;
    float *a = buffer(f, which, (int64_t)f->src.shape.n_head * f->n);
    for (int32_t h = 0; h < f->src.shape.n_head; h++)
        for (int32_t i = 0; i < f->n; i++) {
            const int32_t p =
                positions(&f->src, obs->il, h / (f->src.shape.n_head / f->src.shape.n_head_kv))[i];
            a[(int64_t)h * f->n + i] = p < 0 ? padding : 0.2f + 3 * number(f, obs->il, which, h, p);
        }
    return a;
}

/* cov = A A^T of a random A; [n_head][d][d]. */
static void make_stats(const struct fake *f, int32_t il, float *mean, float *cov)
{
    for (int32_t h = 0; h < f->src.shape.n_head; h++) {
        float a[FAKE_D][FAKE_D];
        for (int32_t i = 0; i < FAKE_D; i++) {
            mean[h * FAKE_D + i] = 2 * number(f, il, BUF_MEAN, h, i) - 1;
            for (int32_t j = 0; j < FAKE_D; j++)
                a[i][j] = number(f, il, BUF_COV, h, i * FAKE_D + j) - 0.5f;
        }
        for (int32_t i = 0; i < FAKE_D; i++)
            for (int32_t j = 0; j < FAKE_D; j++) {
                float sum = 0;
                for (int32_t k = 0; k < FAKE_D; k++)
                    sum += a[i][k] * a[j][k];
                cov[(h * FAKE_D + i) * FAKE_D + j] = sum / FAKE_D;
            }
    }
}

static const float *make_queries(struct fake *f, int32_t il)
{
    const int32_t n_head = f->src.shape.n_head;
    const int64_t n_all = (int64_t)f->src.n_past * n_head * FAKE_D;
    float *q = buffer(f, BUF_QUERIES, n_all);
    if (recall(f, BUF_QUERIES, il, 0, q, n_all))
        return q;
    for (int32_t p = 0; p < f->src.n_past; p++)
        for (int32_t i = 0; i < n_head * FAKE_D; i++)
            q[(int64_t)p * n_head * FAKE_D + i] = 2 * number(f, il, BUF_QUERIES, i, p) - 1;
    remember(f, BUF_QUERIES, il, 0, q, n_all);
    return q;
}

/* What a gate says of a token, in each KV head. */
static const float *make_input_score(struct fake *f, int32_t il, int32_t n)
{
    float *out = buffer(f, BUF_INPUT, (int64_t)f->src.shape.n_head_kv * n);
    for (int32_t ih = 0; ih < f->src.shape.n_head_kv; ih++)
        for (int32_t i = 0; i < n; i++)
            out[(int64_t)ih * n + i] = 8 * number(f, il, BUF_INPUT, ih, positions(&f->src, il, ih)[i]) - 9;
    return out;
}

/* Nothing of every third token. */
static const float *make_notes(struct fake *f, int32_t il)
{
    float *out = buffer(f, BUF_NOTE, (int64_t)f->src.shape.n_head_kv * f->n);
    for (int32_t ih = 0; ih < f->src.shape.n_head_kv; ih++)
        for (int32_t i = 0; i < f->n; i++) {
            const int32_t p = positions(&f->src, il, ih)[i];
            const bool nothing = p < 0 || mix(f->seed, p) % 3 == 0;
            out[(int64_t)ih * f->n + i] = nothing ? NAN : number(f, il, BUF_NOTE, ih, p);
        }
    return out;
}

/* Words, blanks and punctuation; some come more than once. */
static const char *const *make_texts(struct fake *f)
{
    static const char *const texts[] = {" station", ",", "\n", " the", ".", " ", "\"", "17"};
    free(f->texts);
    f->texts = calloc((size_t)f->src.n_past + 1, sizeof *f->texts);
    assert_non_null(f->texts);
    for (int32_t p = 0; p < f->src.n_past; p++)
        f->texts[p] = texts[mix(f->seed, p) % (sizeof texts / sizeof *texts)];
    return f->texts;
}

/* Not those that would give the window's attention, which is made up by itself. */
static const float *make_window_queries(struct fake *f, int32_t il, int32_t n_window)
{
    const int32_t n_head = f->src.shape.n_head;
    const int64_t n_all = (int64_t)n_head * n_window * FAKE_D;
    float *q = buffer(f, BUF_WINDOW_QUERIES, n_all);
    if (recall(f, BUF_WINDOW_QUERIES, il, n_window, q, n_all))
        return q;
    for (int32_t h = 0; h < n_head; h++)
        for (int32_t w = 0; w < n_window; w++)
            for (int32_t c = 0; c < FAKE_D; c++)
                q[((int64_t)h * n_window + w) * FAKE_D + c] =
                    2 * number(f, il, BUF_QUERIES, h * FAKE_D + c, f->src.n_past - n_window + w) - 1;
    remember(f, BUF_WINDOW_QUERIES, il, n_window, q, n_all);
    return q;
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs, const bool *heads,
                   wnw_observation *obs)
{
    (void)heads; /* the rows of all are made up */
    struct fake *f = (struct fake *)(uintptr_t)src;
    f->n_observed++;
    *obs = (wnw_observation){.il = il,
                             .n_layer = src->shape.n_layer,
                             .n_head = src->shape.n_head,
                             .n_head_kv = src->shape.n_head_kv,
                             .n_embd_head = FAKE_D,
                             .n = f->n,
                             .n_past = src->n_past,
                             .n_entry = f->n_entry[il],
                             .pos = positions(src, il, 0),
                             .attn_scale = 0.35f,
                             .rope_theta = f->theta,
                             .n_rot = FAKE_D,
                             .rope_neox = il % 2 == 0,
                             .source = f};
    if (f->unobserved)
        return WNW_OK;
    if (needs->flags & WNW_NEED_KEYS) {
        make_rows(f, il, BUF_KEYS);
        obs->keys = keys;
        obs->key_rows = key_rows;
    }
    if (needs->flags & WNW_NEED_VALUES) {
        make_rows(f, il, BUF_VALUES);
        obs->values = values;
        obs->value_rows = value_rows;
    }
    if (needs->flags & WNW_NEED_WINDOW_ATTN) {
        obs->n_window = needs->window < src->n_past ? needs->window : src->n_past;
        obs->window_attn = make_window(f, il, obs->n_window);
        obs->window_queries = make_window_queries(f, il, obs->n_window);
    }
    if (needs->flags & WNW_NEED_ATTN_SUM)
        obs->attn_sum = make_received(f, il, BUF_SUM, 0, false);
    if (needs->flags & WNW_NEED_ATTN_MAX)
        obs->attn_max = make_received(f, il, BUF_MAX, 0, true);
    if (needs->flags & WNW_NEED_SECOND_PASS) {
        obs->n_pass2 = FAKE_N_PASS2;
        obs->pass2_sum = make_received(f, il, BUF_PASS2_SUM, FAKE_N_PASS2, false);
        obs->pass2_max = make_received(f, il, BUF_PASS2_MAX, FAKE_N_PASS2, true);
    }
    if (needs->flags & WNW_NEED_PROJ_NORM) {
        obs->proj_norm = proj_norm;
        obs->head_proj_norm = head_proj_norm;
    }
    if (needs->flags & WNW_NEED_QUERY_STATS) {
        float *mean = buffer(f, BUF_MEAN, (int64_t)src->shape.n_head * FAKE_D);
        float *cov = buffer(f, BUF_COV, (int64_t)src->shape.n_head * FAKE_D * FAKE_D);
        make_stats(f, il, mean, cov);
        obs->query_mean = mean;
        obs->query_cov = cov;
        obs->n_query_stats = src->n_past > needs->skip ? src->n_past - needs->skip : 0;
    }
    if (needs->flags & WNW_NEED_EVERY_QUERY) {
        obs->queries = make_queries(f, il);
        obs->n_queries = src->n_past;
    }
    if (needs->flags & WNW_NEED_TOKEN_TEXT)
        obs->token_text = make_texts(f);
    if (needs->flags & WNW_NEED_NOTES)
        obs->note = make_notes(f, il);
    if (needs->flags & WNW_NEED_INPUT_GATE)
        obs->input_score = make_input_score(f, il, obs->n);
    return WNW_OK;
}

/* ---- A profile of every kind ---- */

static void *array(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);
    assert_non_null(p);
    return p;
}

/* A permutation of the query heads and scores in head order that fit it. */
static void make_ranks(const struct fake *f, int32_t il, int field, int32_t *rank, float *mean)
{
    const int32_t n = f->src.shape.n_head;
    for (int32_t h = 0; h < n; h++)
        mean[h] = number(f, il, field, h, 0);
    for (int32_t h = 0; h < n; h++) {
        int32_t better = 0;
        for (int32_t i = 0; i < n; i++)
            better += mean[i] > mean[h] || (mean[i] == mean[h] && i < h);
        rank[better] = h;
    }
}

static void make_compiler(struct wnw__compiler_table *t, int32_t n_layer, int32_t n_head)
{
    *t = (struct wnw__compiler_table){
        .n_layer = n_layer, .window = 64, .n_entropy = 3, .n_ppl = 2, .default_ppl_bin = 0};
    t->entropy_edge = array(2, sizeof *t->entropy_edge);
    t->ppl_edge = array(1, sizeof *t->ppl_edge);
    t->entropy_edge[0] = 2;
    t->entropy_edge[1] = 3;
    t->ppl_edge[0] = 8;
    t->weight = array((int64_t)n_layer * n_head, sizeof *t->weight);
    t->tau = array((int64_t)n_layer * 6, sizeof *t->tau);
    for (int32_t i = 0; i < n_layer * n_head; i++)
        t->weight[i] = 0.85f + 0.05f * (float)(i % 7);
    for (int32_t i = 0; i < n_layer * 6; i++)
        t->tau[i] = 0.5f + 0.25f * (float)(i % 5);
}

static void make_profile(struct fake *f)
{
    const int64_t n_layer = f->src.shape.n_layer, n_head = f->src.shape.n_head,
                  n_head_kv = f->src.shape.n_head_kv;
    struct wnw_profile *p = &f->profile;
    *p = (struct wnw_profile){.model = f->src.shape,
                              .fingerprint = "0123456789abcdef0123456789abcdef",
                              .kinds = (1u << WNW_N_PROFILE_KINDS) - 1,
                              .head_sink = 4,
                              .head_recent = 12};
    p->srh_rank = array(n_layer * n_head, sizeof *p->srh_rank);
    p->trad_rank = array(n_layer * n_head, sizeof *p->trad_rank);
    p->srh_mean = array(n_layer * n_head, sizeof *p->srh_mean);
    p->trad_mean = array(n_layer * n_head, sizeof *p->trad_mean);
    p->layer_share = array(n_layer, sizeof *p->layer_share);
    p->head_score = array(n_layer * n_head, sizeof *p->head_score);
    p->head_alpha = array(n_layer * n_head_kv, sizeof *p->head_alpha);
    p->query_mean = array(n_layer * n_head * FAKE_D, sizeof *p->query_mean);
    p->query_cov = array(n_layer * n_head * FAKE_D * FAKE_D, sizeof *p->query_cov);
    p->query_filter = array(n_layer * n_head_kv * FAKE_D, sizeof *p->query_filter);
    p->layer_gradient = array(n_layer, sizeof *p->layer_gradient);
    for (int32_t il = 0; il < n_layer; il++)
        p->layer_gradient[il] = 0.5 + (double)(il % 3);
    p->n_curve = 2;
    p->curve_ratio = array(2, sizeof *p->curve_ratio);
    p->curve_keep = array(2 * n_layer * n_head_kv, sizeof *p->curve_keep);
    p->curve_ratio[0] = 0.3;
    p->curve_ratio[1] = 0.7;
    p->n_quality = 2;
    p->quality_dropped = array(2, sizeof *p->quality_dropped);
    p->quality_dropped[0] = 0.1;
    p->quality_dropped[1] = 0.4;
    for (int i = 0; i < WNW_N_QUALITY; i++) {
        p->quality_loss[i] = array(2, sizeof *p->quality_loss[i]);
        p->quality_loss[i][0] = 0.05;
        p->quality_loss[i][1] = 0.3;
        p->quality_kept[i] = array(2, sizeof *p->quality_kept[i]);
        p->quality_kept[i][0] = 0.6;
        p->quality_kept[i][1] = 0.2;
    }
    p->n_best = 2;
    p->best_size = array(2, sizeof *p->best_size);
    p->best_share = array(2 * n_layer * n_head_kv, sizeof *p->best_share);
    p->n_gate_feature = wnw__gate_all(FAKE_D);
    p->gate_weight = array(n_layer * n_head_kv * p->n_gate_feature, sizeof *p->gate_weight);
    p->gate_bias = array(n_layer * n_head_kv, sizeof *p->gate_bias);
    for (int32_t i = 0; i < n_layer * n_head_kv * p->n_gate_feature; i++)
        p->gate_weight[i] = 0.2f * number(f, 0, 80, i, 0) - 0.1f;
    p->best_size[0] = 0.5;
    p->best_size[1] = 0.005; /* tests ask for small sizes */
    double sum = 0;
    for (int32_t il = 0; il < n_layer; il++) {
        make_ranks(f, il, 70, p->srh_rank + il * n_head, p->srh_mean + il * n_head);
        make_ranks(f, il, 71, p->trad_rank + il * n_head, p->trad_mean + il * n_head);
        sum += p->layer_share[il] = 0.1 + (double)number(f, il, 72, 0, 0);
        for (int32_t h = 0; h < n_head; h++)
            p->head_score[il * n_head + h] = (double)number(f, il, 73, h, 0);
        for (int32_t h = 0; h < n_head_kv; h++)
            p->head_alpha[il * n_head_kv + h] = (double)number(f, il, 74, h, 0);
        for (int32_t h = 0; h < n_head_kv; h++) {
            const float keep = 0.3f + 0.7f * number(f, il, 76, h, 0);
            p->curve_keep[il * n_head_kv + h] = keep;
            p->curve_keep[(n_layer + il) * n_head_kv + h] = keep * number(f, il, 77, h, 0);
            const float share = 0.1f + 0.8f * number(f, il, 78, h, 0);
            p->best_share[il * n_head_kv + h] = share;
            p->best_share[(n_layer + il) * n_head_kv + h] = 0.04f * share * number(f, il, 79, h, 0);
        }
        for (int32_t i = 0; i < n_head_kv * FAKE_D; i++)
            p->query_filter[il * n_head_kv * FAKE_D + i] = 2 * number(f, il, 75, i, 0) - 1;
        make_stats(f, il + 100, p->query_mean + il * n_head * FAKE_D,
                   p->query_cov + il * n_head * FAKE_D * FAKE_D);
    }
    for (int32_t il = 0; il < n_layer; il++)
        p->layer_share[il] /= sum;
    make_compiler(&p->compiler, f->src.shape.n_layer, f->src.shape.n_head);
    f->src.profile = p;
}

/* ---- Public ---- */

void fake_init(struct fake *f, int32_t n_layer, int32_t n_head_kv, int32_t group, int32_t n_past, bool ragged)
{
    assert_cmp(n_layer, <=, FAKE_MAX_LAYER);
    assert_cmp(n_head_kv, <=, FAKE_MAX_HEAD);
    const uint32_t seed = (uint32_t)(n_layer * 1000 + n_past);
    *f = (struct fake){.src = {.shape = {.n_layer = n_layer,
                                         .n_head = n_head_kv * group,
                                         .n_head_kv = n_head_kv,
                                         .d = FAKE_D,
                                         .left_alone = f->left_alone},
                               .n_past = n_past,
                               .entry_bytes = {.each = 16},
                               .layer = layer,
                               .perplexity = perplexity,
                               .look_ahead = look_ahead,
                               .observe = observe,
                               .progress = progress},
                       .seed = seed,
                       .cancel_after = -1};
    for (int32_t i = 0; i < FAKE_D / 2; i++)
        f->theta[i] = powf(10000.0f, -2.0f * (float)i / FAKE_D);
    f->pos = array((int64_t)n_layer * n_head_kv * n_past, sizeof *f->pos);
    for (int32_t pass = 0; pass < 2; pass++) { /* the first finds the longest head */
        uint32_t s = seed;
        int32_t longest = 0;
        for (int32_t i = 0; i < n_layer * n_head_kv; i++) {
            int32_t m = 0;
            for (int32_t p = 0; p < n_past; p++)
                if (!ragged || test_uniform(&s) < 0.3f + 0.2f * (float)(i % 4)) {
                    if (pass)
                        f->pos[(int64_t)i * f->n + m] = p;
                    m++;
                }
            f->n_entry[i / n_head_kv][i % n_head_kv] = m;
            longest = m > longest ? m : longest;
            for (int32_t k = m; pass && k < f->n; k++)
                f->pos[(int64_t)i * f->n + k] = -1;
        }
        f->n = longest;
        for (int32_t ih = 0; ih < n_head_kv; ih++)
            f->off[ih] = (int64_t)ih * longest;
    }
    make_profile(f);
}

void fake_leave_alone(struct fake *f, uint32_t layers)
{
    for (int32_t il = 0; il < FAKE_MAX_LAYER; il++)
        f->left_alone[il] = layers >> il & 1u;
}

void fake_free(struct fake *f)
{
    wnw_profile *p = malloc(sizeof *p); /* the library releases what a profile holds, and itself */
    assert_non_null(p);
    free(f->pos);
    free(f->texts);
    for (size_t i = 0; i < sizeof f->buffers / sizeof *f->buffers; i++)
        free(f->buffers[i]);
    for (size_t i = 0; i < sizeof f->made / sizeof **f->made; i++)
        free(f->made[i / FAKE_MAX_LAYER][i % FAKE_MAX_LAYER].values);
    *p = f->profile;
    wnw_profile_free(p);
}

int fake_plan(wnw_plan **plan, struct fake *f, const char *recipe, const wnw_size *size, wnw_report *report)
{
    wnw_policy *p = test_policy(recipe);
    const int rc = wnw__plan_make(plan, p, size, &f->src, report);
    wnw_policy_free(p);
    return rc;
}

wnw_plan *fake_planned(struct fake *f, const char *recipe, const wnw_size *size, wnw_report *report)
{
    wnw_plan *plan = NULL;
    if (fake_plan(&plan, f, recipe, size, report) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    return plan;
}

int64_t fake_check_plan(const wnw_plan *plan, const struct fake *f)
{
    int64_t sum = 0;
    assert_int_equal(wnw_plan_n_layer(plan), f->src.shape.n_layer);
    assert_int_equal(wnw_plan_n_head_kv(plan), f->src.shape.n_head_kv);
    assert_int_equal(wnw_plan_n_tokens(plan), f->src.n_past);
    for (int32_t il = 0; il < f->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < f->src.shape.n_head_kv; ih++) {
            const int32_t *pos;
            const int32_t n = wnw_plan_head(plan, il, ih, &pos);
            const int32_t *have = positions(&f->src, il, ih);
            int32_t j = 0;
            for (int32_t i = 0; i < n; i++) {
                while (j < f->n_entry[il][ih] && have[j] != pos[i])
                    j++;
                assert_true(j++ < f->n_entry[il][ih]); /* in the head, after the one before */
            }
            if (!wnw__layer_takes_part(&f->src.shape, il))
                assert_int_equal(n, f->n_entry[il][ih]);
            else
                sum += n;
        }
    return sum;
}

int64_t fake_entries(const struct fake *f)
{
    int64_t sum = 0;
    for (int32_t il = 0; il < f->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < f->src.shape.n_head_kv && !!wnw__layer_takes_part(&f->src.shape, il); ih++)
            sum += f->n_entry[il][ih];
    return sum;
}

int32_t fake_kept(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const int32_t *pos;
    return wnw_plan_head(plan, il, ih, &pos);
}

bool fake_holds(const wnw_plan *plan, int32_t il, int32_t ih, int32_t position)
{
    const int32_t *pos;
    const int32_t n = wnw_plan_head(plan, il, ih, &pos);
    for (int32_t i = 0; i < n; i++)
        if (pos[i] == position)
            return true;
    return false;
}
