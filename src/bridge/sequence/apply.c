/* SPDX-License-Identifier: MIT */
/* What a plan drops of a sequence, and what it writes into the entries that stay. */
#include "bridge/sequence/sequence.h"

#include "base/parallel.h"
#include "plan/merge.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* A layer while a plan is applied to it. */
struct layer {
    struct wnw__bridge_sequence *s;
    const wnw_plan *plan;
    int32_t il;
    int32_t *room;              /* of all lists */
    const int32_t **keep;       /* [heads of all streams] rows that stay */
    int32_t *n_keep;            /* [heads of all streams] */
    struct wnw__merged *merged; /* [n_head_kv], or NULL: nothing is written */
    int32_t **kept;             /* [n_head_kv] entries that stay, as indices of the list */
    int32_t **new_row;          /* [n_head_kv] where each row of a head goes */
    float *x;                   /* [d] */
};

/* An entry of a head, for merging. */
struct head {
    const struct wnw__bridge_sequence *s;
    int32_t il, ih;
};

static const int32_t *rows_of(const struct layer *a, int32_t ih)
{
    return a->s->list[a->il].row + a->s->off[wnw__bridge_head(a->s, a->il, ih)];
}

static const int32_t *places_of(const struct layer *a, int32_t ih)
{
    return a->s->list[a->il].pos + a->s->off[wnw__bridge_head(a->s, a->il, ih)];
}

static int32_t planned(const struct layer *a, int32_t ih, const int32_t **pos)
{
    const int64_t i = wnw__bridge_head(a->s, a->il, ih);
    *pos = a->plan->pos + a->plan->off[i];
    return (int32_t)(a->plan->off[i + 1] - a->plan->off[i]);
}

static void release(struct layer *a)
{
    for (int32_t ih = 0; ih < a->s->shape.n_head_kv; ih++)
        if (a->merged)
            wnw__merged_free(&a->merged[ih]);
    free(a->merged);
    free(a->room);
    free(a->keep);
    free(a->n_keep);
    free(a->kept);
    free(a->new_row);
    free(a->x);
}

static int need_lists(struct layer *a)
{
    const struct wnw__bridge_layer *l = a->s->layer[a->il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const size_t n_all = (size_t)l->rows.n_head_kv, n_head = (size_t)l->n_head;
    size_t n = 1;
    for (size_t i = 0; i < n_all; i++)
        n += (size_t)kv->len[i];
    a->room = malloc(3 * n * sizeof *a->room);
    a->keep = calloc(n_all, sizeof *a->keep);
    a->n_keep = calloc(n_all, sizeof *a->n_keep);
    a->kept = calloc(n_head, sizeof *a->kept);
    a->new_row = calloc(n_head, sizeof *a->new_row);
    a->x = malloc((size_t)a->s->shape.d * sizeof *a->x);
    if (a->room && a->keep && a->n_keep && a->kept && a->new_row && a->x)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory to drop entries of layer %d", (int)a->il);
}

/* Lists what stays of a head of the sequence from `at` on, and returns where the next list begins. new_row[row] is -1 where
 * a row goes. */
static int32_t *list_head(struct layer *a, int32_t ih, int32_t *at)
{
    const int32_t *want, n_want = planned(a, ih, &want), i = wnw__bridge_head_of_all(a->s, ih);
    const int32_t n_entry = a->s->n_entry[wnw__bridge_head(a->s, a->il, ih)],
                  len = a->s->layer[a->il]->rows.layers[0].len[i];
    const int32_t *row = rows_of(a, ih), *pos = places_of(a, ih);
    int32_t *keep = at, *kept = a->kept[ih] = keep + len, *new_row = a->new_row[ih] = kept + n_entry, n = 0;
    memset(new_row, 0, (size_t)len * sizeof *new_row);
    for (int32_t e = 0, k = 0, n_kept = 0; e < n_entry; e++) {
        while (k < n_want && want[k] < pos[e])
            k++;
        if (k < n_want && want[k] == pos[e])
            kept[n_kept++] = e;
        else
            new_row[row[e]] = -1;
    }
    for (int32_t r = 0; r < len; r++)
        if (new_row[r] == 0) {
            new_row[r] = n;
            keep[n++] = r;
        }
    a->keep[i] = keep;
    a->n_keep[i] = n;
    return new_row + len;
}

static void list_all(struct layer *a)
{
    const struct wnw__bridge_layer *l = a->s->layer[a->il];
    const int32_t first = wnw__bridge_head_of_all(a->s, 0);
    int32_t *at = a->room;
    for (int32_t i = 0; i < l->rows.n_head_kv; i++) {
        if (i >= first && i < first + l->n_head) {
            at = list_head(a, i - first, at);
            continue;
        }
        a->keep[i] = at;
        a->n_keep[i] = l->rows.layers[0].len[i];
        for (int32_t r = 0; r < a->n_keep[i]; r++)
            *at++ = r;
    }
}

/* ---- Contents ---- */

static void read_value(const void *of, int32_t entry, float *dst)
{
    const struct head *h = of;
    const int32_t *row = h->s->list[h->il].row + h->s->off[wnw__bridge_head(h->s, h->il, h->ih)];
    wnw__bridge_row_read(h->s, h->il, WNW_VALUES, h->ih, row[entry], dst);
}

static struct wnw__merge_head merge_of(const struct layer *a, const struct head *h,
                                       const struct wnw__plan_contents *contents)
{
    const int32_t *want;
    return (struct wnw__merge_head){.contents = contents,
                                    .averages = a->plan->averages,
                                    .pos = places_of(a, h->ih),
                                    .keep = a->kept[h->ih],
                                    .n = a->s->n_entry[wnw__bridge_head(a->s, a->il, h->ih)],
                                    .n_keep = planned(a, h->ih, &want),
                                    .d = a->s->shape.d,
                                    .read = read_value,
                                    .of = h};
}

/* Checks what is written into the entries that stay, or computes it. */
static int prepare_contents(struct layer *a, bool dry)
{
    const struct wnw__plan_contents *contents = wnw__plan_contents_of(a->plan, a->il);
    const int32_t n_head = a->s->shape.n_head_kv;
    if (!contents)
        return WNW_OK;
    if (a->s->layer[a->il]->v_in_keys)
        return wnw__fail(WNW_E_UNSUPPORTED, "values of layer %d are part of its keys: neither can be written",
                         (int)a->il);
    a->merged = calloc((size_t)n_head, sizeof *a->merged);
    if (!a->merged)
        return wnw__fail(WNW_E_NOMEM, "no memory to merge values");
    for (int32_t ih = 0; ih < n_head; ih++) {
        const struct head h = {a->s, a->il, ih};
        const struct wnw__merge_head m = merge_of(a, &h, &contents[ih]);
        WNW_TRY(wnw__merge_check(&m, a->il, ih));
        if (!dry && contents[ih].n_merge > 0)
            WNW_TRY(wnw__merge_values(&a->merged[ih], &m));
    }
    return WNW_OK;
}

static void prune(struct layer *a, int32_t ih, int32_t row, const struct wnw__plan_contents *contents)
{
    wnw__bridge_row_read(a->s, a->il, WNW_KEYS, ih, row, a->x);
    for (int32_t c = 0; c < contents->n_channel; c++)
        a->x[contents->channels[c]] = 0.0f;
    wnw__bridge_row_write(a->s, a->il, WNW_KEYS, ih, row, a->x);
}

/* After the others are gone. */
static void write_contents(struct layer *a)
{
    const struct wnw__plan_contents *contents = wnw__plan_contents_of(a->plan, a->il);
    for (int32_t ih = 0; contents && ih < a->s->shape.n_head_kv; ih++) {
        const int32_t *row = rows_of(a, ih), *want, n = planned(a, ih, &want);
        for (int32_t t = 0; t < n; t++) {
            const int32_t at = a->new_row[ih][row[a->kept[ih][t]]];
            if (a->merged[ih].changed && a->merged[ih].changed[t])
                wnw__bridge_row_write(a->s, a->il, WNW_VALUES, ih, at,
                                      a->merged[ih].value + (size_t)t * (size_t)a->s->shape.d);
            if (contents[ih].n_channel > 0 && t < n - contents[ih].n_spared)
                prune(a, ih, at, &contents[ih]);
        }
    }
}

/* ---- Settled entries ---- */

static int need_marks(struct layer *a)
{
    struct wnw__cache *rows = &a->s->layer[a->il]->rows;
    if (a->plan->n_settled[a->il] == 0 || rows->aux_planes[WNW_AUX_SETTLED] > 0)
        return WNW_OK;
    return wnw__cache_set_aux(rows, WNW_AUX_SETTLED, 1);
}

static void mark(const struct layer *a)
{
    const struct wnw__kv_layer *kv = &a->s->layer[a->il]->rows.layers[0];
    for (int32_t ih = 0; a->plan->n_settled[a->il] > 0 && ih < a->s->shape.n_head_kv; ih++) {
        const int32_t *row = rows_of(a, ih), *want, n = planned(a, ih, &want);
        float *settled = wnw__cache_aux(kv, WNW_AUX_SETTLED, 0) + kv->off[wnw__bridge_head_of_all(a->s, ih)];
        for (int32_t t = 0; t < n; t++)
            settled[a->new_row[ih][row[a->kept[ih][t]]]] = t < a->plan->n_settled[a->il];
    }
}

/* ---- A layer ---- */

static int apply_layer(struct layer *a, bool dry)
{
    WNW_TRY(need_lists(a));
    list_all(a);
    WNW_TRY(prepare_contents(a, dry));
    if (dry)
        return WNW_OK;
    WNW_TRY(need_marks(a));
    WNW_TRY(wnw__cache_keep_in_place(&a->s->layer[a->il]->rows, 0, a->keep, a->n_keep, WNW_CACHE_GROWTH));
    write_contents(a);
    mark(a);
    return WNW_OK;
}

/* A plan while it is applied: layers are independent of each other. */
struct applying {
    struct wnw__bridge_sequence *s;
    const wnw_plan *plan;
    bool dry;
    int *rc; /* [n_layer] */
};

static void apply_one(int32_t il, void *user)
{
    const struct applying *x = user;
    struct layer a = {.s = x->s, .plan = x->plan, .il = il};
    if (!wnw__layer_takes_part(&x->s->shape, il))
        return;
    x->rc[il] = apply_layer(&a, x->dry);
    release(&a);
}

/* Says what failed in a layer, on this thread: another one may have had the error. */
static int fail_of(const struct applying *x, int32_t il)
{
    struct applying again = *x;
    again.dry = true;
    const int rc = x->rc[il];
    apply_one(il, &again);
    return x->rc[il] == rc ? rc : wnw__fail(rc, "no memory to drop entries of layer %d", (int)il);
}

int wnw__bridge_apply(struct wnw__bridge_sequence *s, const wnw_plan *plan, bool dry)
{
    struct applying x = {
        .s = s, .plan = plan, .dry = dry, .rc = calloc((size_t)s->shape.n_layer, sizeof *x.rc)};
    int rc = WNW_OK;
    if (!x.rc)
        return wnw__fail(WNW_E_NOMEM, "no memory to drop entries");
    wnw__parallel(wnw__bridge_pool(s->b), s->shape.n_layer, apply_one, &x);
    for (int32_t il = 0; rc == WNW_OK && il < s->shape.n_layer; il++)
        rc = x.rc[il] == WNW_OK ? WNW_OK : fail_of(&x, il);
    free(x.rc);
    return rc;
}
