/* SPDX-License-Identifier: MIT */
/*
 * A unit of work is up to ROWS queries of one KV head with all entries, or, where a head has few queries, with a piece of
 * them; the thread that finishes a head's last piece combines them in order. Queries of a head are counted row by row,
 * the query heads of its group in each.
 */
#include "attend/attend_cells.h"
#include "attend/attend.h"
#include "base/kv_types.h"
#include "kernel/kernel_impl.h"
#include "kernel/noise.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 192,  /* queries of a unit */
    FEW = 64,    /* up to this number of queries of a head, entries are cut into pieces */
    PANELS = 8,  /* more queries than these take transposed keys */
    PIECE = 256, /* least entries of a piece */
    PIECES = 32  /* most pieces of a head */
};

enum seen { SEEN_NOT, SEEN_SOME, SEEN_ALL };

struct work {
    float *q, *kf, *kt, *vf, *s, *o, *m, *l, *corr;
    uint8_t *seen; /* [ROWS] of each row, for the current tile */
    int32_t *
        open; /* [n_stream * n_row] count_open of each row, -1 = not counted yet; NULL: there are many rows */
};

struct wnw__cells_shared {
    const struct wnw__vec *vec;
    int32_t n_threads, d_k, ld; /* the largest so far */
    float *work;                /* [n_threads][work_floats] */
    size_t work_floats;
    float *partial; /* [n_stream * n_head_kv][pieces][queries][ld + 2] */
    size_t cap_partial;
    atomic_int *done; /* [n_stream * n_head_kv] */
    int32_t cap_done;
    int32_t *open; /* [n_threads][cap_open] */
    int32_t cap_open;
    float *softmax; /* [n_stream][n_head][n_row] maxima, then what exp(s - maximum) is multiplied with */
    size_t cap_softmax;
    atomic_int next, left;
};

/* Some queries of one KV head and its entries. */
struct job {
    struct wnw__cells_shared *sh;
    const struct wnw__cells_op *op;
    struct work w;
    int32_t stream, ih, group, ld;
    int32_t first, n_query; /* counted over rows and the heads of the group */
    int32_t first_row, last_row;
    int32_t n;           /* entries */
    int32_t most_pieces; /* of any head */
    const uint8_t *k, *v;
    size_t k_stride, v_stride;
    const int32_t *cell; /* [n] */
    int32_t last_cell;
};

/* Queries first .. first+n-1 of the head. */
static void set_queries(struct job *job, int32_t first, int32_t n)
{
    job->first = first;
    job->n_query = n;
    job->first_row = first / job->group;
    job->last_row = (first + n - 1) / job->group;
}

/* A query of a job. Going from one to the next takes less time than two divisions, which count where tiles are small. */
struct query {
    int32_t row, head;
};

static struct query first_query(const struct job *job)
{
    return (struct query){.row = job->first_row,
                          .head = job->ih * job->group + job->first - job->first_row * job->group};
}

static void next_query(const struct job *job, struct query *q)
{
    if (++q->head < (job->ih + 1) * job->group)
        return;
    q->head = job->ih * job->group;
    q->row++;
}

static int32_t round_up(int32_t x, int32_t to)
{
    return (x + to - 1) / to * to;
}

static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

static float *alloc_floats(size_t n)
{
    void *p = NULL;
    if (n > SIZE_MAX / sizeof(float) || posix_memalign(&p, 64, n * sizeof(float)) != 0)
        return NULL;
    memset(p, 0, n * sizeof(float));
    return p;
}

/* ---- Types ---- */

/* The vector kernels read the types that winnow stores. Rows of others become float32 first. */
bool wnw__cells_takes(enum ggml_type type)
{
    wnw_kv_type as;
    return wnw__kv_type_of_ggml(&as, type) || ggml_get_type_traits(type)->to_float != NULL;
}

/* Stored rows of d elements. */
struct rows {
    enum ggml_type type;
    const uint8_t *at;
    size_t stride; /* bytes from one to the next */
    int32_t n, d;
};

/* rows -> dst[n][ld], columns d..ld set to 0 */
static void load_rows(const struct wnw__vec *vec, const struct rows *r, float *dst, int32_t ld)
{
    const uint8_t *src = r->at;
    wnw_kv_type as;
    const bool direct = wnw__kv_type_of_ggml(&as, r->type);
    if (direct && r->stride == ggml_row_size(r->type, r->d)) {
        vec->to_f32(as, src, r->n, r->d, dst, ld);
        return;
    }
    for (int32_t i = 0; i < r->n; i++, src += r->stride, dst += ld) {
        if (direct) {
            vec->to_f32(as, src, 1, r->d, dst, ld);
            continue;
        }
        ggml_get_type_traits(r->type)->to_float(src, dst, r->d);
        memset(dst + r->d, 0, (size_t)(ld - r->d) * sizeof *dst);
    }
}

/* ---- Masks ---- */

static const char *mask_row(const struct job *job, int32_t row)
{
    return job->op->mask + (size_t)job->stream * job->op->mask_stream + (size_t)row * job->op->mask_row;
}

/* The mask's values of a tile whose cells are no neighbours. */
union mask_room {
    uint16_t half[WNW_TILE];
    uint32_t whole[WNW_TILE];
};

/* The mask's values of n cells, which ascend, as they are stored: in place where the cells are neighbours, else in the room. */
static const void *mask_of(const struct job *job, const char *row, const int32_t *cell, int32_t n,
                           union mask_room *room)
{
    const uint16_t *half = (const void *)row;
    const uint32_t *whole = (const void *)row;
    if (cell[n - 1] - cell[0] == n - 1)
        return job->op->mask_f16 ? (const void *)(half + cell[0]) : (const void *)(whole + cell[0]);
    for (int32_t i = 0; job->op->mask_f16 && i < n; i++)
        room->half[i] = half[cell[i]];
    for (int32_t i = 0; !job->op->mask_f16 && i < n; i++)
        room->whole[i] = whole[cell[i]];
    return room;
}

static enum seen seen_f16(const uint16_t *m, int32_t n)
{
    uint16_t any = 0, all = 0xffff;
    for (int32_t i = 0; i < n; i++) {
        any = (uint16_t)(any | m[i]);
        all = (uint16_t)(all & m[i]);
    }
    if (any == 0)
        return SEEN_ALL;
    if (any == 0xfc00 && all == 0xfc00)
        return SEEN_NOT;
    return SEEN_SOME;
}

static enum seen seen_f32(const uint32_t *m, int32_t n)
{
    uint32_t any = 0, all = UINT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        any |= m[i];
        all &= m[i];
    }
    if (any == 0)
        return SEEN_ALL;
    if (any == 0xff800000u && all == 0xff800000u)
        return SEEN_NOT;
    return SEEN_SOME;
}

static bool is_open(const char *row, int32_t cell, bool is_f16)
{
    return is_f16 ? ((const uint16_t *)(const void *)row)[cell] == 0
                  : ((const uint32_t *)(const void *)row)[cell] == 0;
}

/* How many cells a row sees before the first that it does not see, or sees with a slope. Most tiles lie below it, and their
 * cells need not be looked up one by one. */
static int32_t count_open(const char *row, int32_t n_cell, bool is_f16)
{
    enum { BLOCK = 8 };
    const size_t size = is_f16 ? sizeof(uint16_t) : sizeof(uint32_t);
    const size_t n = (size_t)n_cell * size / sizeof(uint64_t) / BLOCK;
    size_t i = 0;
    for (uint64_t any = 0; i < n; i++) {
        uint64_t words[BLOCK];
        memcpy(words, row + i * sizeof words, sizeof words);
        for (int k = 0; k < BLOCK; k++)
            any |= words[k];
        if (any != 0)
            break;
    }
    int32_t cell = (int32_t)(i * BLOCK * sizeof(uint64_t) / size);
    while (cell < n_cell && is_open(row, cell, is_f16))
        cell++;
    return cell;
}

/* The same of row `row` of few, counted once in an operation by each thread. */
static int32_t open_of(const struct job *job, int32_t row)
{
    if (!job->w.open)
        return 0;
    int32_t *n = &job->w.open[job->stream * job->op->n_row + row];
    if (*n < 0)
        *n = count_open(mask_row(job, row), job->op->n_cell, job->op->mask_f16);
    return *n;
}

static enum seen seen_by(const struct job *job, int32_t row, int32_t i, int32_t n)
{
    union mask_room room;
    const int32_t open = job->op->mask ? open_of(job, row) : INT32_MAX;
    if (job->last_cell < open ||
        job->cell[i + n - 1] < open) /* the latter is mostly in no cache of the CPU */
        return SEEN_ALL;
    const void *m = mask_of(job, mask_row(job, row), job->cell + i, n, &room);
    return job->op->mask_f16 ? seen_f16(m, n) : seen_f32(m, n);
}

/* Sets w.seen of every row of the queries for n entries from i on. Returns whether any of them sees any. */
static bool note_seen(const struct job *job, int32_t i, int32_t n)
{
    bool any = false;
    for (int32_t row = job->first_row; row <= job->last_row; row++) {
        const enum seen seen = seen_by(job, row, i, n);
        job->w.seen[row - job->first_row] = (uint8_t)seen;
        any = any || seen != SEEN_NOT;
    }
    return any;
}

static void mask_values(const struct job *job, int32_t row, int32_t i, int32_t n, float *value)
{
    union mask_room room;
    const void *m = mask_of(job, mask_row(job, row), job->cell + i, n, &room);
    if (!job->op->mask_f16) {
        memcpy(value, m, (size_t)n * sizeof *value);
        return;
    }
    const uint16_t *half = m;
    for (int32_t c = 0; c < n; c++)
        if (half[c] == 0)
            value[c] = 0.0f;
        else
            value[c] = half[c] == 0xfc00 ? -INFINITY : ggml_fp16_to_fp32(half[c]);
}

/* Adds the mask to the scores of n entries from i on; places after them count as entries that are not seen. */
static void mask_tile(const struct job *job, int32_t i, int32_t n)
{
    struct query q = first_query(job);
    int32_t loaded = -1;
    float value[WNW_TILE];
    for (int32_t r = 0; r < job->n_query; r++, next_query(job, &q)) {
        const int32_t row = q.row;
        float *s = job->w.s + (int64_t)r * WNW_TILE;
        const enum seen seen = job->w.seen[row - job->first_row];
        if (seen == SEEN_SOME) {
            const float slope = wnw__form_slope(job->op->max_bias, job->op->n_head, q.head);
            if (loaded != row)
                mask_values(job, row, i, n, value);
            loaded = row;
            for (int32_t c = 0; c < n; c++)
                s[c] = value[c] == -INFINITY ? -INFINITY : s[c] + slope * value[c];
        }
        for (int32_t c = seen == SEEN_NOT ? 0 : n; c < WNW_TILE; c++)
            s[c] = -INFINITY;
    }
}

/* ---- Tiles ---- */

static void load_queries(const struct job *job)
{
    const struct wnw__cells_op *op = job->op;
    const int32_t d = op->d_k, mr = job->n_query > PANELS ? job->sh->vec->panel_rows : 1;
    const int32_t whole = round_up(job->n_query, mr);
    if (whole > job->n_query)
        memset(job->w.q + (size_t)(whole - mr) * (size_t)d, 0, (size_t)mr * (size_t)d * sizeof *job->w.q);
    struct query q = first_query(job);
    for (int32_t i = 0; i < job->n_query; i++, next_query(job, &q)) {
        const float *src = (const void *)(op->q + (size_t)job->stream * op->q_stream +
                                          (size_t)q.head * op->q_head + (size_t)q.row * op->q_row);
        float *to = job->w.q + (size_t)(i - i % mr) * (size_t)d + i % mr;
        for (int32_t c = 0; c < d; c++)
            to[(size_t)c * (size_t)mr] = op->scale * src[c];
    }
}

/* Kernels take a few rows at a time. */
static void begin_softmax(const struct job *job)
{
    const int32_t n = round_up(job->n_query, WNW_ROWS_PAD);
    for (int32_t i = 0; i < n; i++) {
        job->w.m[i] = -FLT_MAX; /* finite, so that m - m and -inf - m are defined */
        job->w.l[i] = 0.0f;
        job->w.corr[i] = 1.0f;
    }
    memset(job->w.o, 0, (size_t)job->n_query * (size_t)job->ld * sizeof *job->w.o);
}

static void score_tile(const struct job *job, int32_t i, int32_t n)
{
    const struct wnw__vec *vec = job->sh->vec;
    const struct wnw__cells_op *op = job->op;
    const uint8_t *k = job->k + (size_t)i * job->k_stride;
    const struct rows rows = {.type = op->k_type, .at = k, .stride = job->k_stride, .n = n, .d = op->d_k};
    wnw_kv_type as;
    if (job->n_query > PANELS) {
        load_rows(vec, &rows, job->w.kf, op->d_k);
        vec->transpose(job->w.kf, op->d_k, job->w.kt);
        vec->mul_panels(job->w.q, round_up(job->n_query, vec->panel_rows) / vec->panel_rows, op->d_k,
                        job->w.kt, job->w.s);
    } else if (wnw__kv_type_of_ggml(&as, op->k_type)) {
        vec->mul_rows(as, job->w.q, job->n_query, k, job->k_stride, n, op->d_k, 1.0f, job->w.s, WNW_TILE);
    } else {
        load_rows(vec, &rows, job->w.kf, op->d_k);
        vec->mul_rows(as, job->w.q, job->n_query, job->w.kf, (size_t)op->d_k * sizeof(float), n, op->d_k,
                      1.0f, job->w.s, WNW_TILE);
    }
    if (op->cap > 0.0f)
        for (int32_t r = 0; r < job->n_query; r++)
            for (int32_t c = 0; c < n; c++)
                job->w.s[(int64_t)r * WNW_TILE + c] = op->cap * tanhf(job->w.s[(int64_t)r * WNW_TILE + c]);
}

static void value_tile(const struct job *job, int32_t i, int32_t n)
{
    const struct wnw__vec *vec = job->sh->vec;
    const struct wnw__cells_op *op = job->op;
    const uint8_t *v = job->v + (size_t)i * job->v_stride;
    wnw_kv_type as;
    /* Kernels read stored rows of whole tiles of columns; quantised ones are converted once for many queries. */
    const bool in_place = wnw__kv_type_of_ggml(&as, op->v_type) && job->ld == op->d_v &&
                          job->n_query <= PANELS && (job->n_query <= 4 || !ggml_is_quantized(op->v_type));
    if (in_place) {
        vec->accumulate(as, job->w.s, job->n_query, job->w.corr, v, job->v_stride, n, job->ld, job->w.o);
        return;
    }
    const struct rows rows = {.type = op->v_type, .at = v, .stride = job->v_stride, .n = n, .d = op->d_v};
    load_rows(vec, &rows, job->w.vf, job->ld);
    vec->accumulate(WNW_KV_F32, job->w.s, job->n_query, job->w.corr, job->w.vf,
                    (size_t)job->ld * sizeof *job->w.vf, n, job->ld, job->w.o);
}

/* Takes entries from .. to-1 into the softmax and output of the queries. */
static void stream(const struct job *job, int32_t from, int32_t to)
{
    load_queries(job);
    begin_softmax(job);
    for (int32_t i = from; i < to; i += WNW_TILE) {
        const int32_t n = to - i < WNW_TILE ? to - i : WNW_TILE;
        if (!note_seen(job, i, n))
            continue;
        score_tile(job, i, n);
        mask_tile(job, i, n);
        job->sh->vec->softmax_tile(job->w.s, job->n_query, job->w.m, job->w.l, job->w.corr);
        value_tile(job, i, n);
    }
}

/* ---- Results ---- */

/* Where query heads of a stream have their rows' maxima; [n_row] each. */
static float *maxima_of(const struct job *job, int32_t h)
{
    return job->sh->softmax +
           ((size_t)job->stream * (size_t)job->op->n_head + (size_t)h) * (size_t)job->op->n_row;
}

/* The same for the factors. */
static float *factors_of(const struct job *job, int32_t h)
{
    const struct wnw__cells_op *op = job->op;
    return maxima_of(job, h) + (size_t)op->n_stream * (size_t)op->n_head * (size_t)op->n_row;
}

/* out = o / l, where a sink adds its score to the softmax but no value. A query that sees nothing gets 0. */
static void write_out(const struct job *job, int32_t query, const float *o, float m, float l)
{
    const struct wnw__cells_op *op = job->op;
    const int32_t row = query / job->group, h = job->ih * job->group + query % job->group;
    float *out = (void *)(op->out + (size_t)job->stream * op->out_stream + (size_t)h * op->out_head +
                          (size_t)row * op->out_row);
    float scale = 1.0f;
    if (op->sinks) {
        const float top = op->sinks[h] > m ? op->sinks[h] : m;
        scale = expf(m - top);
        l = l * scale + expf(op->sinks[h] - top);
    }
    const float norm = l > 0.0f || l != l ? scale / l : 0.0f;
    if (op->columns) {
        maxima_of(job, h)[row] = m;
        factors_of(job, h)[row] = norm;
    }
    for (int32_t c = 0; c < op->d_v; c++)
        out[c] = norm * o[c];
    wnw__noise_at("attention of cells", out, op->d_v, 1, h * op->d_v, op->d_v);
}

static float *partial_at(const struct job *job, int32_t piece)
{
    const size_t floats = (size_t)job->n_query * (size_t)(job->ld + 2);
    const size_t head = (size_t)(job->stream * job->op->n_head_kv + job->ih);
    return job->sh->partial + (head * (size_t)job->most_pieces + (size_t)piece) * floats;
}

/* o = sum_p o_p exp(m_p - m), l alike, pieces in ascending order */
static void combine(const struct job *job, int32_t n_piece)
{
    const int32_t ld = job->ld;
    for (int32_t i = 0; i < job->n_query; i++) {
        const size_t at = (size_t)i * (size_t)(ld + 2);
        float *o = job->w.o, m = -FLT_MAX, l = 0.0f;
        for (int32_t p = 0; p < n_piece; p++)
            m = partial_at(job, p)[at + (size_t)ld] > m ? partial_at(job, p)[at + (size_t)ld] : m;
        memset(o, 0, (size_t)ld * sizeof *o);
        for (int32_t p = 0; p < n_piece; p++) {
            const float *part = partial_at(job, p) + at, weight = expf(part[ld] - m);
            l += weight * part[ld + 1];
            for (int32_t c = 0; c < ld; c++)
                o[c] += weight * part[c];
        }
        write_out(job, job->first + i, o, m, l);
    }
}

/* ---- Units ---- */

/* The size of a piece of n entries, and how many there are; at least one. */
static int32_t cut(int32_t n, int32_t *n_piece)
{
    const int32_t even = (n + PIECES - 1) / PIECES;
    const int32_t size = even <= PIECE ? PIECE : round_up(even, WNW_TILE);
    *n_piece = n > 0 ? (n + size - 1) / size : 1;
    return size;
}

static size_t work_floats(int32_t d_k, int32_t ld)
{
    const size_t d = (size_t)d_k, w = (size_t)ld;
    return padded(ROWS * d) + 2 * padded(WNW_TILE * d) + padded(WNW_TILE * w) + ROWS * WNW_TILE +
           padded(ROWS * w) + 3 * ROWS + ROWS / sizeof(float);
}

static struct work work_at(const struct wnw__cells_shared *sh, int ith)
{
    const size_t d = (size_t)sh->d_k, ld = (size_t)sh->ld;
    struct work w = {.q = sh->work + (size_t)ith * sh->work_floats};
    w.kf = w.q + padded(ROWS * d);
    w.kt = w.kf + padded(WNW_TILE * d);
    w.vf = w.kt + padded(WNW_TILE * d);
    w.s = w.vf + padded(WNW_TILE * ld);
    w.o = w.s + ROWS * WNW_TILE;
    w.m = w.o + padded(ROWS * ld);
    w.l = w.m + ROWS;
    w.corr = w.l + ROWS;
    w.seen = (uint8_t *)(w.corr + ROWS);
    return w;
}

static struct job job_of(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int32_t head)
{
    const struct wnw__kv_layer *l = &op->cache->layers[0];
    const int32_t ih = op->first_stream * op->n_head_kv + head;
    struct job job = {.sh = sh,
                      .op = op,
                      .stream = head / op->n_head_kv,
                      .ih = head % op->n_head_kv,
                      .group = op->n_head / op->n_head_kv,
                      .ld = round_up(op->d_v, WNW_TILE_PAD),
                      .n = wnw__cache_find(l, ih, op->n_cell),
                      .k_stride = op->cache->row_bytes,
                      .v_stride = op->v_in_keys ? op->cache->row_bytes : op->cache->v_row_bytes};
    if (job.n == 0)
        return job;
    job.k = l->k + (size_t)l->off[ih] * job.k_stride;
    job.v = (op->v_in_keys ? l->k : l->v) + (size_t)l->off[ih] * job.v_stride;
    job.cell = l->pos + l->off[ih];
    job.last_cell = job.cell[job.n - 1];
    return job;
}

/* Queries of each KV head. */
static int32_t queries(const struct wnw__cells_op *op)
{
    return op->n_row * (op->n_head / op->n_head_kv);
}

bool wnw__cells_is_few(const struct wnw__cells_op *op)
{
    return queries(op) <= FEW;
}

/* The scratch of a thread at the beginning of its work on an operation. */
static struct work begin_work(const struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith)
{
    struct work w = work_at(sh, ith);
    const int32_t n = op->n_stream * op->n_row;
    if (!op->mask || !wnw__cells_is_few(op))
        return w;
    w.open = sh->open + (size_t)ith * (size_t)sh->cap_open;
    for (int32_t i = 0; i < n; i++)
        w.open[i] = -1;
    return w;
}

static void run_piece(struct job *job, int32_t piece)
{
    int32_t n_piece;
    const int32_t size = cut(job->n, &n_piece), ld = job->ld;
    if (piece >= n_piece)
        return;
    const int32_t from = piece * size, to = from + size < job->n ? from + size : job->n;
    if (job->op->write)
        job->op->write(job->op, (job->op->first_stream + job->stream) * job->op->n_head_kv + job->ih, from,
                       to);
    stream(job, from, to);
    float *partial = partial_at(job, piece);
    for (int32_t i = 0; i < job->n_query; i++, partial += ld + 2) {
        memcpy(partial, job->w.o + (int64_t)i * ld, (size_t)ld * sizeof *partial);
        partial[ld] = job->w.m[i];
        partial[ld + 1] = job->w.l[i];
    }
    atomic_int *done = &job->sh->done[job->stream * job->op->n_head_kv + job->ih];
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 == n_piece) {
        atomic_store_explicit(done, 0, memory_order_relaxed);
        combine(job, n_piece);
    }
}

static void run_rows(struct job *job)
{
    stream(job, 0, job->n);
    for (int32_t i = 0; i < job->n_query; i++)
        write_out(job, job->first + i, job->w.o + (int64_t)i * job->ld, job->w.m[i], job->w.l[i]);
}

/* Pieces of the longest head. */
static int32_t most_pieces(const struct wnw__cells_op *op)
{
    int32_t most = 1;
    for (int32_t head = 0; head < op->n_stream * op->n_head_kv; head++) {
        int32_t n_piece;
        cut(op->cache->layers[0].len[op->first_stream * op->n_head_kv + head], &n_piece);
        most = n_piece > most ? n_piece : most;
    }
    return most;
}

static int32_t take_unit(struct wnw__cells_shared *sh)
{
    return atomic_fetch_add_explicit(&sh->next, 1, memory_order_relaxed);
}

/* Every thread calls this once, after its last unit. */
static void leave(struct wnw__cells_shared *sh, int nth)
{
    if (atomic_fetch_add_explicit(&sh->left, 1, memory_order_acq_rel) + 1 < nth)
        return;
    atomic_store_explicit(&sh->next, 0, memory_order_relaxed);
    atomic_store_explicit(&sh->left, 0, memory_order_release);
}

void wnw__cells_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth)
{
    const int32_t n_head = op->n_stream * op->n_head_kv, n_query = queries(op);
    const bool few = wnw__cells_is_few(op);
    const int32_t n_run = (n_query + ROWS - 1) / ROWS, pieces = few ? most_pieces(op) : 0;
    const int32_t n_unit = n_head * (few ? pieces : n_run);
    const bool works = ith < sh->n_threads;
    const struct work w = works ? begin_work(sh, op, ith) : (struct work){0};
    while (works) {
        const int32_t u = take_unit(sh);
        if (u >= n_unit)
            break;
        struct job job = job_of(sh, op, u % n_head);
        job.w = w;
        job.most_pieces = pieces;
        /* The last rows of a prompt see the most entries; they come first. */
        const int32_t first = few ? 0 : (n_run - 1 - u / n_head) * ROWS;
        set_queries(&job, first, n_query - first < ROWS ? n_query - first : ROWS);
        if (few)
            run_piece(&job, u / n_head);
        else
            run_rows(&job);
    }
    leave(sh, nth);
}

/* ---- Columns ---- */

/* Adds the probabilities of the tile's rows to the numbers of n entries from i on. The stride between rows of one
 * query head is the size of the group. */
static void add_columns(const struct job *job, int32_t i, int32_t n)
{
    const struct wnw__cache *c = job->op->cache;
    const struct wnw__kv_layer *l = &c->layers[0];
    const int64_t at = l->off[(job->op->first_stream + job->stream) * job->op->n_head_kv + job->ih] + i;
    for (int32_t g = 0; g < job->group; g++) {
        const int32_t h = job->ih * job->group + g;
        float sum[WNW_TILE] = {0}, max[WNW_TILE] = {0};
        for (int32_t r = 0; r < job->n_query; r++) {
            const int32_t row = (job->first + r) / job->group;
            if ((job->first + r) % job->group == g)
                job->sh->vec->column_tile(job->w.s + (int64_t)r * WNW_TILE, 1, maxima_of(job, h) + row,
                                          factors_of(job, h) + row, sum, max);
        }
        wnw__noise("sums of cells", sum, WNW_TILE, 1, WNW_TILE);
        wnw__noise("maxima of cells", max, WNW_TILE, 1, WNW_TILE);
        for (int32_t e = 0; e < n && c->aux_planes[WNW_AUX_ATTN_SUM] > 0; e++)
            wnw__cache_aux(l, WNW_AUX_ATTN_SUM, g)[at + e] += sum[e];
        for (int32_t e = 0; e < n && c->aux_planes[WNW_AUX_ATTN_MAX] > 0; e++) {
            float *most = wnw__cache_aux(l, WNW_AUX_ATTN_MAX, g) + at + e;
            const float p = max[e] < 1.0f ? max[e] : 1.0f; /* rounding */
            *most = p > *most ? p : *most;
        }
    }
}

/* Entries from .. to-1 of a head under all queries. */
static void run_columns(struct job *job, int32_t from, int32_t to)
{
    const int32_t n_query = queries(job->op);
    for (int32_t first = 0; from < to && first < n_query; first += ROWS) {
        set_queries(job, first, n_query - first < ROWS ? n_query - first : ROWS);
        load_queries(job);
        for (int32_t i = from; i < to; i += WNW_TILE) {
            const int32_t n = to - i < WNW_TILE ? to - i : WNW_TILE;
            if (!note_seen(job, i, n))
                continue;
            score_tile(job, i, n);
            mask_tile(job, i, n);
            add_columns(job, i, n);
        }
    }
}

void wnw__cells_columns_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth)
{
    enum { UNIT = 8 * WNW_TILE };
    const int32_t n_head = op->n_stream * op->n_head_kv;
    int32_t longest = 0;
    for (int32_t head = 0; head < n_head; head++) {
        const int32_t n = op->cache->layers[0].len[op->first_stream * op->n_head_kv + head];
        longest = n > longest ? n : longest;
    }
    const int32_t n_unit = n_head * ((longest + UNIT - 1) / UNIT);
    const bool works = ith < sh->n_threads;
    const struct work w = works ? begin_work(sh, op, ith) : (struct work){0};
    while (works) {
        const int32_t u = take_unit(sh);
        if (u >= n_unit)
            break;
        struct job job = job_of(sh, op, u % n_head);
        job.w = w;
        const int32_t from = u / n_head * UNIT;
        run_columns(&job, from, job.n - from < UNIT ? job.n : from + UNIT);
    }
    leave(sh, nth);
}

/* ---- Scratch ---- */

int wnw__cells_shared_new(struct wnw__cells_shared **out, int32_t n_threads)
{
    struct wnw__cells_shared *sh = calloc(1, sizeof *sh);
    if (!sh)
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention scratch");
    sh->vec = wnw__vec_at(0);
    sh->n_threads = n_threads;
    atomic_init(&sh->next, 0);
    atomic_init(&sh->left, 0);
    *out = sh;
    return WNW_OK;
}

void wnw__cells_shared_free(struct wnw__cells_shared *sh)
{
    if (!sh)
        return;
    free(sh->work);
    free(sh->partial);
    free(sh->done);
    free(sh->open);
    free(sh->softmax);
    free(sh);
}

static int reserve_work(struct wnw__cells_shared *sh, int32_t d_k, int32_t ld)
{
    if (sh->work && d_k <= sh->d_k && ld <= sh->ld)
        return WNW_OK;
    d_k = d_k > sh->d_k ? d_k : sh->d_k;
    ld = ld > sh->ld ? ld : sh->ld;
    float *work = alloc_floats(work_floats(d_k, ld) * (size_t)sh->n_threads);
    if (!work)
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention scratch of %d threads",
                         (int)sh->n_threads);
    free(sh->work);
    sh->work = work;
    sh->work_floats = work_floats(d_k, ld);
    sh->d_k = d_k;
    sh->ld = ld;
    return WNW_OK;
}

static int reserve_done(struct wnw__cells_shared *sh, int32_t n)
{
    if (n <= sh->cap_done)
        return WNW_OK;
    atomic_int *done = calloc((size_t)n, sizeof *done);
    if (!done)
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention over %d heads", (int)n);
    for (int32_t i = 0; i < n; i++)
        atomic_init(&done[i], 0);
    free(sh->done);
    sh->done = done;
    sh->cap_done = n;
    return WNW_OK;
}

static int reserve_open(struct wnw__cells_shared *sh, int32_t n)
{
    if (n <= sh->cap_open)
        return WNW_OK;
    int32_t *open = calloc((size_t)sh->n_threads * (size_t)n, sizeof *open);
    if (!open)
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention of %d rows", (int)n);
    free(sh->open);
    sh->open = open;
    sh->cap_open = n;
    return WNW_OK;
}

static int reserve_softmax(struct wnw__cells_shared *sh, const struct wnw__cells_op *op)
{
    const size_t n = 2 * (size_t)op->n_stream * (size_t)op->n_head * (size_t)op->n_row;
    if (n <= sh->cap_softmax)
        return WNW_OK;
    float *softmax = alloc_floats(n);
    if (!softmax)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the softmax of %d rows", (int)op->n_row);
    free(sh->softmax);
    sh->softmax = softmax;
    sh->cap_softmax = n;
    return WNW_OK;
}

int wnw__cells_reserve(struct wnw__cells_shared *sh, const struct wnw__cells_op *op)
{
    const int32_t ld = round_up(op->d_v, WNW_TILE_PAD), n_head = op->n_stream * op->n_head_kv;
    WNW_TRY(reserve_work(sh, op->d_k, ld));
    if (op->columns)
        WNW_TRY(reserve_softmax(sh, op));
    if (!wnw__cells_is_few(op))
        return WNW_OK;
    WNW_TRY(reserve_done(sh, n_head));
    WNW_TRY(reserve_open(sh, op->n_stream * op->n_row));
    const size_t n = (size_t)n_head * (size_t)most_pieces(op) * (size_t)queries(op) * (size_t)(ld + 2);
    if (n <= sh->cap_partial)
        return WNW_OK;
    float *partial = alloc_floats(n);
    if (!partial)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %zu bytes of attention scratch",
                         n * sizeof *partial);
    free(sh->partial);
    sh->partial = partial;
    sh->cap_partial = n;
    return WNW_OK;
}
