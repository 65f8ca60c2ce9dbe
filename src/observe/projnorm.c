/* SPDX-License-Identifier: MIT */
/*
 * The fast version. Entries are taken in tiles of WNW_TILE, transposed as for attention, so that a vector lane is one
 * entry. Its arithmetic is the same wherever it is in a tile. For L1, output columns are the "queries" whose absolute
 * products with the tile are summed in registers. A block of columns is dequantised once for all tiles and is small
 * enough to stay in the second-level cache.
 */
#include "observe/projnorm.h"

#include "base/random.h"
#include "kernel/kernel_impl.h"
#include "kernel/noise.h"
#include "model/model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 768,     /* output columns dequantised at a time: a multiple of every panel_rows */
    GRAM_FOLD = 256, /* output columns that are summed in float before they are added in double */
    MAX_HEAD = 1024, /* largest d that models may have */
    MAX_QUANT = 256, /* largest block of a quantised type */
    PAD = 16         /* floats: keeps arrays on cache lines of their own */
};

struct wnw__proj {
    const struct wnw__vec *vec;
    int32_t n_layer;
    wnw_kv_type type;
    float **gram; /* [n_layer], each [n_head_kv][panels][d][panel_rows] or NULL */
};

/* Up to WNW_TILE entries of one head. */
struct tile {
    int32_t ih, first, n; /* first is an index into todo and sum */
};

struct job {
    struct wnw__proj *p;
    struct wnw__pool *pool;
    int32_t n_threads;
    const struct wnw__proj_weight *w;
    const struct wnw__proj_values *heads;
    wnw_proj_norm kind;
    int32_t il, group, ld;
    int32_t *todo;      /* [n_todo] entries without a norm, as indices in their heads */
    double *sum;        /* [n_todo] */
    struct tile *tiles; /* [n_tile] */
    int32_t n_todo, n_tile;
    int32_t *column, n_column; /* output columns that count */
    float *panels;             /* [n_head][n_panel][d][panel_rows] of the present block */
    int32_t at, n_panel;       /* first column of the block, panels of one head */
    float *scratch;            /* [n_threads][n_scratch] */
    size_t n_scratch;
    double *head_gram; /* [n_head][d][d] */
    atomic_int next;   /* next unit to take */
    int32_t n_unit;
    void (*unit)(struct job *j, int32_t i, float *scratch);
};

int wnw__proj_new(struct wnw__proj **out, int32_t n_layer, wnw_kv_type type)
{
    struct wnw__proj *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p)
        p->gram = calloc((size_t)n_layer, sizeof *p->gram);
    if (!p || !p->gram) {
        wnw__proj_free(p);
        return wnw__fail(WNW_E_NOMEM, "no memory for projected norms of %d layers", (int)n_layer);
    }
    p->vec = wnw__vec_at(0);
    p->n_layer = n_layer;
    p->type = type;
    *out = p;
    return WNW_OK;
}

void wnw__proj_free(struct wnw__proj *p)
{
    if (!p)
        return;
    for (int32_t il = 0; p->gram && il < p->n_layer; il++)
        free(p->gram[il]);
    free(p->gram);
    free(p);
}

/* ---- Work for threads ---- */

/* The loop of one thread: it takes units until none is left. i is the thread's number and selects its
 * scratch. */
static void work(int32_t i, void *user)
{
    struct job *j = user;
    float *scratch = j->scratch + (size_t)i * j->n_scratch;
    for (int32_t k = atomic_fetch_add(&j->next, 1); k < j->n_unit; k = atomic_fetch_add(&j->next, 1))
        j->unit(j, k, scratch);
}

static void run(struct job *j, int32_t n, void (*unit)(struct job *, int32_t, float *))
{
    atomic_store(&j->next, 0);
    j->n_unit = n;
    j->unit = unit;
    wnw__parallel(j->pool, j->n_threads, work, j);
}

/* The floats of scratch that one thread needs for any of the units below. */
static size_t scratch_floats(const struct job *j)
{
    const size_t d = (size_t)j->w->d, ld = (size_t)j->ld, rows = d + (size_t)j->p->vec->panel_rows;
    const size_t tile = 2 * d * WNW_TILE + rows * WNW_TILE;
    const size_t gram = WNW_TILE * ld + d * WNW_TILE + d + d * ld;
    return (tile > gram ? tile : gram) + PAD;
}

/* ---- The weight ---- */

/* Copies the d weights from query head h to output k to dst. Quantised rows are read in whole blocks, which
 * heads may share. */
static void weight_slice(const struct wnw__proj_weight *w, int32_t h, int32_t k, float *dst)
{
    float buffer[MAX_HEAD + 2 * MAX_QUANT];
    const struct ggml_type_traits *traits = ggml_get_type_traits(w->type);
    const int64_t from = (int64_t)h * w->d, block = traits->blck_size;
    const int64_t first = from / block * block, last = (from + w->d + block - 1) / block * block;
    const uint8_t *src = (const uint8_t *)w->data +
                         (size_t)k * ggml_row_size(w->type, (int64_t)w->n_head * w->d) +
                         ggml_row_size(w->type, first);
    if (w->type == GGML_TYPE_F32) {
        memcpy(dst, src, (size_t)w->d * sizeof *dst);
    } else {
        traits->to_float(src, buffer, last - first);
        memcpy(dst, buffer + (from - first), (size_t)w->d * sizeof *dst);
    }
    for (int32_t c = 0; w->factor && c < w->d; c++)
        dst[c] *= *w->factor;
}

int wnw__proj_check(const wnw_model *m, int32_t il)
{
    if (m->layers[il].wo)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "the output projection of layer %d is needed, which the file does not have under its usual name "
        "and shape: %s runs through libllama",
        (int)il, m->arch->name);
}

struct wnw__proj_weight wnw__proj_weight_of(const wnw_model *m, int32_t il)
{
    const struct ggml_tensor *wo = wnw__model_original(m, m->layers[il].wo), *factor = m->layers[il].o_factor;
    return (struct wnw__proj_weight){.type = wo->type,
                                     .data = wo->data,
                                     .n_head = m->hp.n_head,
                                     .n_head_kv = m->hp.n_head_kv,
                                     .d = m->hp.n_embd_head,
                                     .n_out = (int32_t)wo->ne[1],
                                     .factor = factor ? factor->data : NULL};
}

static int check_weight(const struct wnw__proj_weight *w)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(w->type);
    if (w->d > MAX_HEAD || traits->blck_size > MAX_QUANT || (w->type != GGML_TYPE_F32 && !traits->to_float))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "projected norms cannot read output projections of type %s with heads of %d",
                         ggml_type_name(w->type), (int)w->d);
    return WNW_OK;
}

int32_t wnw__proj_columns(wnw_proj_norm kind, int32_t n_out, int32_t *column)
{
    int32_t n = 0;
    const int32_t want =
        kind == WNW_PROJ_SKETCH && n_out > WNW_PROJ_SKETCH_COLUMNS ? WNW_PROJ_SKETCH_COLUMNS : n_out;
    /* Selection sampling: a column is taken with probability (still wanted) / (still left). The generator
     * starts at the same place every time. */
    uint64_t state = 0;
    for (int32_t i = 0; n < want; i++) {
        if ((wnw__mix_next(&state) >> 32) * (uint64_t)(n_out - i) >> 32 < (uint64_t)(want - n))
            column[n++] = i;
    }
    return n;
}

/* ---- Tiles ---- */

/* Converts value i of a head. */
static void load_value(const struct wnw__proj *p, const struct wnw__proj_values *head, int32_t i, int32_t d,
                       float *dst)
{
    const bool is_first = i < head->n_first;
    if (head->f16 && (is_first || i - head->n_first >= head->n_v))
        p->vec->to_f32(WNW_KV_F16,
                       head->f16 + (size_t)(is_first ? i : i - head->n_v) * wnw__row_bytes(WNW_KV_F16, d), 1,
                       d, dst, d);
    else
        p->vec->to_f32(p->type, head->v + (size_t)(i - head->n_first) * wnw__row_bytes(p->type, d), 1, d, dst,
                       d);
    if (head->block > 0)
        p->vec->hadamard(dst, d, head->block);
}

/* Loads the tile's values, transposed, into kt[d][WNW_TILE]. */
static void load_tile(const struct job *j, const struct tile *t, float *rows, float *kt)
{
    const struct wnw__proj_values *head = &j->heads[t->ih];
    const int32_t d = j->w->d;
    for (int32_t i = 0; i < t->n; i++)
        load_value(j->p, head, j->todo[t->first + i], d, rows + (size_t)i * (size_t)d);
    memset(rows + (size_t)t->n * (size_t)d, 0, (size_t)(WNW_TILE - t->n) * (size_t)d * sizeof *rows);
    j->p->vec->transpose(rows, d, kt);
}

/* The unit is one panel of one query head. */
static void pack_panel(struct job *j, int32_t i, float *scratch)
{
    const int32_t rows = j->p->vec->panel_rows, d = j->w->d, h = i / j->n_panel;
    float *panel = j->panels + (size_t)i * (size_t)d * (size_t)rows;
    for (int32_t r = 0; r < rows; r++) {
        const int32_t k = j->at + i % j->n_panel * rows + r;
        if (k < j->n_column)
            weight_slice(j->w, h, j->column[k], scratch);
        else
            memset(scratch, 0, (size_t)d * sizeof *scratch);
        for (int32_t c = 0; c < d; c++)
            panel[c * rows + r] = scratch[c];
    }
}

/* The unit is one tile with the present block of columns. */
static void add_l1(struct job *j, int32_t i, float *scratch)
{
    const struct tile *t = &j->tiles[i];
    const int32_t d = j->w->d;
    float *kt = scratch + WNW_TILE * (size_t)d, sum[WNW_TILE];
    const size_t head_floats = (size_t)j->n_panel * (size_t)d * (size_t)j->p->vec->panel_rows;
    load_tile(j, t, scratch, kt);
    for (int32_t g = 0; g < j->group; g++) {
        const float *panels = j->panels + (size_t)(t->ih * j->group + g) * head_floats;
        memset(sum, 0, sizeof sum);
        j->p->vec->add_abs(panels, j->n_panel, d, kt, sum);
        wnw__noise("norms", sum, WNW_TILE, 1, WNW_TILE);
        for (int32_t e = 0; e < t->n; e++)
            j->sum[t->first + e] += (double)sum[e];
    }
}

/* The unit is one tile; v G v^T is added for each of its entries. */
static void add_l2(struct job *j, int32_t i, float *scratch)
{
    const struct tile *t = &j->tiles[i];
    const int32_t d = j->w->d, rows = j->p->vec->panel_rows, n_panel = (d + rows - 1) / rows;
    float *kt = scratch + WNW_TILE * (size_t)d, *s = kt + WNW_TILE * (size_t)d;
    const float *gram = j->p->gram[j->il] + (size_t)t->ih * (size_t)(n_panel * rows) * (size_t)d;
    double sum[WNW_TILE] = {0};
    load_tile(j, t, scratch, kt);
    j->p->vec->mul_panels(gram, n_panel, d, kt, s);
    for (int32_t c = 0; c < d; c++)
        for (int32_t e = 0; e < WNW_TILE; e++)
            sum[e] += (double)s[c * WNW_TILE + e] * (double)kt[c * WNW_TILE + e];
    for (int32_t e = 0; e < t->n; e++)
        j->sum[t->first + e] = sum[e];
}

/* ---- L1 ---- */

static int fill_l1(struct job *j)
{
    const int32_t rows = j->p->vec->panel_rows;
    const int32_t most = j->n_column < BLOCK ? (j->n_column + rows - 1) / rows : BLOCK / rows;
    j->panels =
        malloc((size_t)j->w->n_head * (size_t)most * (size_t)rows * (size_t)j->w->d * sizeof *j->panels);
    if (!j->panels)
        return wnw__fail(WNW_E_NOMEM, "no memory for the output projection of layer %d", (int)j->il);
    for (j->at = 0; j->at < j->n_column; j->at += BLOCK) {
        const int32_t n = j->n_column - j->at < BLOCK ? j->n_column - j->at : BLOCK;
        j->n_panel = (n + rows - 1) / rows;
        run(j, j->w->n_head * j->n_panel, pack_panel);
        run(j, j->n_tile, add_l1);
    }
    const double scale = (double)j->w->n_out / j->n_column / j->group;
    for (int32_t i = 0; i < j->n_todo; i++)
        j->sum[i] *= scale;
    return WNW_OK;
}

/* ---- L2 ---- */

/* The unit is W_O^h (W_O^h)^T of one query head. */
static void add_gram(struct job *j, int32_t h, float *scratch)
{
    const struct wnw__proj_weight *w = j->w;
    const int32_t d = w->d, ld = j->ld;
    float *rows = scratch, *columns = rows + WNW_TILE * (size_t)ld, *one = columns + WNW_TILE * (size_t)d,
          *o = one + d;
    double *sum = j->head_gram + (size_t)h * (size_t)d * (size_t)d;
    for (int32_t c = 0; c < d; c++)
        one[c] = 1.0f;
    memset(rows, 0, WNW_TILE * (size_t)ld * sizeof *rows);
    memset(o, 0, (size_t)d * (size_t)ld * sizeof *o);
    for (int32_t at = 0; at < w->n_out; at += WNW_TILE) {
        const int32_t n = w->n_out - at < WNW_TILE ? w->n_out - at : WNW_TILE;
        for (int32_t k = 0; k < n; k++) {
            weight_slice(w, h, at + k, rows + (size_t)k * (size_t)ld);
            for (int32_t c = 0; c < d; c++)
                columns[c * WNW_TILE + k] = rows[(size_t)k * (size_t)ld + (size_t)c];
        }
        j->p->vec->accumulate(WNW_KV_F32, columns, d, one, rows, (size_t)ld * sizeof *rows, n, ld, o);
        if ((at + WNW_TILE) % GRAM_FOLD != 0 && at + WNW_TILE < w->n_out)
            continue;
        for (int32_t a = 0; a < d; a++)
            for (int32_t b = 0; b < d; b++)
                sum[a * d + b] += (double)o[a * ld + b];
        memset(o, 0, (size_t)d * (size_t)ld * sizeof *o);
    }
}

/* Packs the means over the groups as panels. */
static void pack_gram(const struct job *j, float *gram)
{
    const int32_t d = j->w->d, rows = j->p->vec->panel_rows, n_panel = (d + rows - 1) / rows;
    for (int32_t ih = 0; ih < j->w->n_head_kv; ih++)
        for (int32_t a = 0; a < n_panel * rows; a++)
            for (int32_t c = 0; c < d; c++) {
                double mean = 0.0;
                for (int32_t h = ih * j->group; a < d && h < (ih + 1) * j->group; h++)
                    mean += j->head_gram[((size_t)h * (size_t)d + (size_t)a) * (size_t)d + (size_t)c];
                gram[((size_t)(ih * n_panel + a / rows) * (size_t)d + (size_t)c) * (size_t)rows +
                     (size_t)(a % rows)] = (float)(mean / j->group);
            }
}

static int make_gram(struct job *j)
{
    const size_t d = (size_t)j->w->d, rows = (size_t)j->p->vec->panel_rows;
    const size_t n_panel = (d + rows - 1) / rows;
    j->head_gram = calloc((size_t)j->w->n_head * d * d, sizeof *j->head_gram);
    float *gram = malloc((size_t)j->w->n_head_kv * n_panel * rows * d * sizeof *gram);
    if (!j->head_gram || !gram) {
        free(gram);
        return wnw__fail(WNW_E_NOMEM, "no memory for the norms' matrices of layer %d", (int)j->il);
    }
    run(j, j->w->n_head, add_gram);
    pack_gram(j, gram);
    j->p->gram[j->il] = gram;
    return WNW_OK;
}

static int fill_l2(struct job *j)
{
    if (!j->p->gram[j->il])
        WNW_TRY(make_gram(j));
    run(j, j->n_tile, add_l2);
    for (int32_t i = 0; i < j->n_todo; i++)
        j->sum[i] = j->sum[i] > 0.0 ? sqrt(j->sum[i]) : 0.0; /* rounding can make a zero norm negative */
    return WNW_OK;
}

/* ---- All kinds ---- */

static void list_todo(struct job *j)
{
    int32_t n = 0, n_tile = 0;
    for (int32_t ih = 0; ih < j->w->n_head_kv; ih++) {
        const struct wnw__proj_values *head = &j->heads[ih];
        const int32_t first = n;
        for (int32_t i = 0; i < head->n; i++)
            if (head->norm[i] < 0.0f)
                j->todo[n++] = i;
        for (int32_t at = first; at < n; at += WNW_TILE)
            j->tiles[n_tile++] =
                (struct tile){.ih = ih, .first = at, .n = n - at < WNW_TILE ? n - at : WNW_TILE};
    }
    j->n_tile = n_tile;
}

static int fill(struct job *j)
{
    const size_t n = (size_t)j->n_todo;
    j->todo = malloc(n * sizeof *j->todo);
    j->sum = calloc(n, sizeof *j->sum);
    j->tiles = malloc((n / WNW_TILE + (size_t)j->w->n_head_kv) * sizeof *j->tiles);
    j->column = malloc((size_t)j->w->n_out * sizeof *j->column);
    j->n_scratch = scratch_floats(j);
    j->scratch = malloc((size_t)j->n_threads * j->n_scratch * sizeof *j->scratch);
    if (!j->todo || !j->sum || !j->tiles || !j->column || !j->scratch)
        return wnw__fail(WNW_E_NOMEM, "no memory for the projected norms of %zu values", n);
    list_todo(j);
    j->n_column = wnw__proj_columns(j->kind, j->w->n_out, j->column);
    WNW_TRY(j->kind == WNW_PROJ_L2 ? fill_l2(j) : fill_l1(j));
    for (int32_t t = 0; t < j->n_tile; t++)
        for (int32_t i = j->tiles[t].first; i < j->tiles[t].first + j->tiles[t].n; i++)
            j->heads[j->tiles[t].ih].norm[j->todo[i]] = (float)j->sum[i];
    return WNW_OK;
}

int wnw__proj_fill(struct wnw__proj *p, struct wnw__pool *pool, const struct wnw__proj_weight *w, int32_t il,
                   wnw_proj_norm kind, const struct wnw__proj_values *heads)
{
    struct job j = {.p = p,
                    .pool = pool,
                    .n_threads = pool ? pool->n_threads : 1,
                    .w = w,
                    .heads = heads,
                    .kind = kind,
                    .il = il};
    WNW_TRY(check_weight(w));
    j.group = w->n_head / w->n_head_kv;
    j.ld = (w->d + WNW_TILE_PAD - 1) / WNW_TILE_PAD * WNW_TILE_PAD;
    atomic_init(&j.next, 0);
    for (int32_t ih = 0; ih < w->n_head_kv; ih++)
        for (int32_t i = 0; i < heads[ih].n; i++)
            j.n_todo += heads[ih].norm[i] < 0.0f;
    if (j.n_todo == 0)
        return WNW_OK;
    const int rc = fill(&j);
    free(j.todo);
    free(j.sum);
    free(j.tiles);
    free(j.column);
    free(j.panels);
    free(j.head_gram);
    free(j.scratch);
    return rc;
}
