/* SPDX-License-Identifier: MIT */
/*
 * A plan for layers on X. Their entries are fetched into the host's cache, which planning and dropping know (watch/plan.c).
 * What these changed there is done on X afterwards: entries that went are dropped, and those that were written into are sent back.
 */
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"

#include <math.h>
#include <stdlib.h>

/* ---- Numbers that entries keep ---- */

/* Room for n_head numbers of each cell; NULL: no memory. */
static float *need_numbers(const struct wnw__bridge_layer *l, float **numbers, int32_t n_head, float empty)
{
    const size_t n = (size_t)l->k.n_stream * (size_t)l->k.n_cell * (size_t)n_head;
    if (*numbers)
        return *numbers;
    *numbers = malloc(n * sizeof **numbers);
    for (size_t i = 0; *numbers && i < n; i++)
        (*numbers)[i] = empty;
    return *numbers;
}

void wnw__wrap_need_gates(const struct wnw__bridge_layer *l)
{
    (void)need_numbers(l, &l->wrap->gate, l->n_head, NAN);
}

void wnw__wrap_keep_gate(const struct wnw__bridge_layer *l, int64_t cell, const float *score, int32_t stride)
{
    float *to = need_numbers(l, &l->wrap->gate, l->n_head, NAN);
    for (int32_t ih = 0; to && ih < l->n_head; ih++)
        to[cell * l->n_head + ih] = score[ih * stride];
}

int wnw__wrap_add_sums(struct wnw__bridge_layer *l, int32_t head, int64_t off, int64_t cap, const float *sum)
{
    const struct wnw__wrap_head *h = &l->wrap->heads[head];
    const int32_t n_head = l->info.n_head, group = n_head / l->n_head;
    float *to = need_numbers(l, &l->wrap->sums, n_head, 0.0f);
    if (!to)
        return wnw__fail(WNW_E_NOMEM, "no memory for sums of attention in layer %d", (int)l->il);
    to += (int64_t)(head / l->n_head) * l->k.n_cell * n_head + head % l->n_head * group;
    for (int32_t e = 0; e < h->n; e++)
        for (int32_t g = 0; g < group && h->row[e] >= off && h->row[e] < off + cap; g++)
            to[(int64_t)h->cell[e] * n_head + g] += sum[g * cap + h->row[e] - off];
    return WNW_OK;
}

/* The cell of entry e of a head, counted over all streams. */
static int64_t cell_of(const struct wnw__bridge_layer *l, int32_t i, int32_t e)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    return (int64_t)(i / l->n_head) * l->k.n_cell + kv->pos[kv->off[i] + e];
}

/* The place of the entry among numbers of all KV heads. */
static int64_t place_of(const struct wnw__bridge_layer *l, int32_t i, int32_t e)
{
    return cell_of(l, i, e) * l->n_head + i % l->n_head;
}

/* Gives entries their numbers of one kind. */
static int fill_numbers(struct wnw__bridge_layer *l, enum wnw__aux kind, const float *numbers)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    if (!numbers)
        return WNW_OK;
    WNW_TRY(wnw__cache_set_aux(&l->rows, kind, 1));
    for (int32_t i = 0; i < l->rows.n_head_kv; i++)
        for (int32_t e = 0; e < kv->len[i]; e++)
            wnw__cache_aux(kv, kind, 0)[kv->off[i] + e] = numbers[place_of(l, i, e)];
    return WNW_OK;
}

/* Gives entries what they received from each query head of their group. */
static int fill_sums(struct wnw__bridge_layer *l)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t group = l->info.n_head / l->n_head;
    if (!l->wrap->sums)
        return WNW_OK;
    WNW_TRY(wnw__cache_set_aux(&l->rows, WNW_AUX_ATTN_SUM, group));
    for (int32_t i = 0; i < l->rows.n_head_kv; i++)
        for (int32_t e = 0; e < kv->len[i]; e++)
            for (int32_t g = 0; g < group; g++)
                wnw__cache_aux(kv, WNW_AUX_ATTN_SUM, g)[kv->off[i] + e] =
                    l->wrap->sums[cell_of(l, i, e) * l->info.n_head + i % l->n_head * group + g];
    return WNW_OK;
}

/* Notes which entries are settled now. */
static int take_settled(struct wnw__bridge_layer *l)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    if (l->rows.aux_planes[WNW_AUX_SETTLED] == 0)
        return WNW_OK;
    float *to = need_numbers(l, &l->wrap->settled_marks, l->n_head, 0.0f);
    if (!to)
        return wnw__fail(WNW_E_NOMEM, "no memory for what is settled of layer %d", (int)l->il);
    for (int32_t i = 0; i < l->rows.n_head_kv; i++)
        for (int32_t e = 0; e < kv->len[i]; e++)
            to[place_of(l, i, e)] = wnw__cache_aux(kv, WNW_AUX_SETTLED, 0)[kv->off[i] + e];
    return WNW_OK;
}

/* ---- From X ---- */

/* Makes the host's entries for those of a head. A rectangular layer may have fewer rows than cells were noted. */
static int place_head(struct wnw__bridge_layer *l, int32_t stream, int32_t ih)
{
    const struct wnw__wrap_layer *w = l->wrap;
    const int32_t i = stream * l->n_head + ih;
    int32_t *cell, n;
    WNW_TRY(wnw__wrap_list(l, stream, ih, &cell, &n));
    while (!w->ragged && n > 0 && (int64_t)stream * l->k.n_cell + cell[n - 1] >= w->rows)
        n--;
    const int rc = n > 0 ? wnw__cache_place(&l->rows, 0, i, i + 1, cell, n) : WNW_OK;
    free(cell);
    return rc;
}

/* The row of X's storage that has entry e of a head. A rectangular layer has them in the order of such numbers. */
static int64_t row_of(const struct wnw__bridge_layer *l, int32_t i, int32_t e)
{
    return l->wrap->ragged ? l->wrap->heads[i].row[e] : place_of(l, i, e);
}

static int fetch_rows(struct wnw__bridge_layer *l, bool is_v)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const size_t bytes = is_v ? l->rows.v_row_bytes : l->rows.row_bytes;
    uint8_t *rows, *to = is_v ? kv->v : kv->k;
    if (bytes == 0)
        return WNW_OK;
    WNW_TRY(wnw__wrap_rows_fetch(l, is_v, &rows));
    for (int32_t i = 0; i < l->rows.n_head_kv; i++)
        for (int32_t e = 0; e < kv->len[i]; e++)
            memcpy(to + (size_t)(kv->off[i] + e) * bytes, rows + (size_t)row_of(l, i, e) * bytes, bytes);
    free(rows);
    return WNW_OK;
}

static int fetch_layer(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    WNW_TRY(wnw__wrap_find_holes(l));
    WNW_TRY(wnw__wrap_layer_note(l));
    WNW_TRY(wnw__cache_init_rows(&l->rows, l->k.n_stream * l->n_head, ggml_row_size(l->k.type, l->d_k),
                                 l->v.base ? ggml_row_size(l->v.type, l->d_v) : 0));
    for (int32_t s = 0; s < l->k.n_stream; s++)
        for (int32_t ih = 0; ih < l->n_head; ih++)
            WNW_TRY(place_head(l, s, ih));
    for (int is_v = 0; is_v < 2; is_v++)
        WNW_TRY(fetch_rows(l, is_v));
    WNW_TRY(fill_sums(l));
    WNW_TRY(fill_numbers(l, WNW_AUX_GATE, w->gate));
    return fill_numbers(l, WNW_AUX_SETTLED, w->settled_marks);
}

int wnw__wrap_mirror_begin(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c)
{
    struct wnw__wrap_run *r = b->wrap;
    ggml_backend_synchronize(r->x);
    r->planned = c;
    wnw__wrap_host_show(&r->plan_host, true);
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (!wnw__bridge_acts_on(b, l))
            continue;
        WNW_TRY(fetch_layer(l));
        WNW_TRY(wnw__wrap_host_add(&r->plan_host, r->w, l->info.factors));
        if (wnw_policy_needs(b->watch.policy).flags & WNW_NEED_PROJ_NORM)
            WNW_TRY(wnw__wrap_host_add(&r->plan_host, r->w, l->info.wo));
    }
    return WNW_OK;
}

/* ---- To X ---- */

/* Drops on X what the host's head no longer has. */
static int drop_head(struct wnw__bridge_layer *l, int32_t stream, int32_t ih)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t i = stream * l->n_head + ih, *has = kv->pos + kv->off[i];
    int32_t *cell, n, n_out = 0;
    WNW_TRY(wnw__wrap_list(l, stream, ih, &cell, &n));
    for (int32_t j = 0, e = 0; j < n; j++) {
        while (e < kv->len[i] && has[e] < cell[j])
            e++;
        if (e == kv->len[i] || has[e] != cell[j])
            cell[n_out++] = cell[j];
    }
    const int rc = n_out > 0 ? wnw__wrap_rows_drop(l, stream, ih, cell, n_out) : WNW_OK;
    free(cell);
    return rc;
}

/* Memory goes back at once, unless `computing`: a graph follows, which moves rows for those that it brings. Where X has no memory to move them,
 * the next graph says so. */
static int give_layer(struct wnw__bridge_layer *l, bool written, bool computing)
{
    for (int32_t s = 0; s < l->k.n_stream; s++)
        for (int32_t ih = 0; ih < l->n_head; ih++)
            WNW_TRY(drop_head(l, s, ih));
    WNW_TRY(take_settled(l));
    if (written)
        return wnw__wrap_rows_put(l);
    if (l->wrap->ragged && !computing)
        (void)wnw__wrap_rows_settle(l, 0, 0, 0);
    return WNW_OK;
}

int wnw__wrap_mirror_end(struct wnw__bridge_backend *b, int rc, bool written)
{
    struct wnw__wrap_run *r = b->wrap;
    for (int32_t i = 0; r->planned && i < r->planned->n_layer; i++) {
        struct wnw__bridge_layer *l = r->planned->layers[i];
        if (l->rows.n_head_kv == 0)
            continue;
        if (rc == WNW_OK)
            rc = give_layer(l, written, r->computing);
        wnw__cache_free(&l->rows);
        l->rows = (struct wnw__cache){0};
    }
    wnw__wrap_host_free(&r->plan_host);
    r->planned = NULL;
    return rc;
}
