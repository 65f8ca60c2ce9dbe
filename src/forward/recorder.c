/* SPDX-License-Identifier: MIT */
/* Lists of recorders. Every function calls each recorder of the list in turn. */
#include "forward/recorder.h"

#include <stdlib.h>

int wnw__recorders_add(struct wnw__recorders *r, const struct wnw__recorder *one)
{
    struct wnw__recorder *list = realloc(r->list, ((size_t)r->n + 1) * sizeof *list);
    if (!list)
        return wnw__fail(WNW_E_NOMEM, "no memory for a list of recorders");
    list[r->n++] = *one;
    r->list = list;
    return WNW_OK;
}

int wnw__recorders_open(struct wnw__recorders *r, const struct wnw__recorder_type *type,
                        const struct wnw__record_arg *arg, const struct wnw__record_shape *shape)
{
    struct wnw__recorder one = {.type = type, .arg = *arg};
    WNW_TRY(type->open(&one.rec, shape, arg));
    const int rc = wnw__recorders_add(r, &one);
    if (rc != WNW_OK)
        type->free(one.rec);
    return rc;
}

void wnw__recorders_cut(struct wnw__recorders *r, int32_t keep)
{
    while (r->n > keep) {
        const struct wnw__recorder *last = &r->list[--r->n];
        last->type->free(last->rec);
    }
}

void wnw__recorders_drop(struct wnw__recorders *r, const struct wnw__recorder_type *type)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        if (r->list[i].type == type)
            type->free(r->list[i].rec);
        else
            r->list[n++] = r->list[i];
    }
    r->n = n;
}

void wnw__recorders_free(struct wnw__recorders *r)
{
    wnw__recorders_cut(r, 0);
    free(r->list);
    *r = (struct wnw__recorders){0};
}

int wnw__recorders_copy(struct wnw__recorders *to, const struct wnw__recorders *from,
                        const struct wnw__record_shape *shape)
{
    for (int32_t i = 0; i < from->n; i++) {
        struct wnw__recorder one = from->list[i];
        WNW_TRY(one.type->copy(&one.rec, from->list[i].rec, shape));
        const int rc = wnw__recorders_add(to, &one);
        if (rc != WNW_OK) {
            one.type->free(one.rec);
            return rc;
        }
    }
    return WNW_OK;
}

int32_t wnw__shared_layer(const struct wnw__shape *shape)
{
    int32_t il = 0;
    while (il < shape->n_layer && !(wnw__shape_readers(shape, il) > 1 && wnw__layer_takes_part(shape, il)))
        il++;
    return il < shape->n_layer ? il : -1;
}

int wnw__record_one_reader(const struct wnw__record_shape *shape, const char *what)
{
    const int32_t il = wnw__shared_layer(&shape->model);
    if (il >= 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the policy needs %s of all layers that read a cache, and %d read that of layer "
                         "%d of this model: only the attention that entries receive is noted of all",
                         what, (int)wnw__shape_readers(&shape->model, il), (int)il);
    return WNW_OK;
}

void *wnw__recorders_find(const struct wnw__recorders *r, const struct wnw__recorder_type *type)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->list[i].type == type)
            return r->list[i].rec;
    return NULL;
}

static int32_t count(const struct wnw__recorders *r)
{
    return r ? r->n : 0;
}

bool wnw__recorders_read_softmax(const struct wnw__recorders *r)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->reads_softmax)
            return true;
    return false;
}

bool wnw__recorders_read_output(const struct wnw__recorders *r)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->reads_output)
            return true;
    return false;
}

unsigned wnw__recorders_read_columns(const struct wnw__recorders *r, const struct wnw__record_pass *pass)
{
    unsigned columns = 0;
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->reads_columns)
            columns |= r->list[i].type->reads_columns(r->list[i].rec, pass);
    return columns;
}

int wnw__recorders_begin(const struct wnw__recorders *r, const struct wnw__record_pass *pass)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->begin)
            WNW_TRY(r->list[i].type->begin(r->list[i].rec, pass));
    return WNW_OK;
}

int wnw__recorders_reserve(const struct wnw__recorders *r, const struct wnw__record_pass *pass)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->reserve)
            WNW_TRY(r->list[i].type->reserve(r->list[i].rec, pass));
    return WNW_OK;
}

static int stages_of(const struct wnw__recorder *one, enum wnw__point point, int32_t il,
                     const struct wnw__record_pass *pass)
{
    return one->type->stages ? one->type->stages(one->rec, point, il, pass) : 0;
}

int wnw__recorders_stages(const struct wnw__recorders *r, enum wnw__point point, int32_t il,
                          const struct wnw__record_pass *pass)
{
    int most = 0;
    for (int32_t i = 0; i < count(r); i++) {
        const int n = stages_of(&r->list[i], point, il, pass);
        most = n > most ? n : most;
    }
    return most;
}

void wnw__recorders_take(const struct wnw__recorders *r, const struct wnw__record_rows *rows, int ith,
                         int nth)
{
    for (int32_t i = 0; i < count(r); i++)
        if ((rows->reader == 0 || r->list[i].type->every_reader) &&
            rows->stage < stages_of(&r->list[i], rows->point, rows->il, rows->pass))
            r->list[i].type->take(r->list[i].rec, rows, ith, nth);
}

double wnw__recorders_ops(const struct wnw__recorders *r, int32_t il, const struct wnw__record_pass *pass)
{
    double ops = 0;
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->ops)
            ops += r->list[i].type->ops(r->list[i].rec, il, pass);
    return ops;
}

int32_t wnw__recorders_logit_rows(const struct wnw__recorders *r, const struct wnw__record_pass *pass)
{
    int32_t most = 1;
    for (int32_t i = 0; i < count(r); i++) {
        const struct wnw__recorder_type *type = r->list[i].type;
        const int32_t n = type->logit_rows ? type->logit_rows(r->list[i].rec, pass) : 1;
        most = n > most ? n : most;
    }
    return most;
}

void wnw__recorders_logits(const struct wnw__recorders *r, const struct wnw__record_logits *logits)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->logits)
            r->list[i].type->logits(r->list[i].rec, logits);
}

void wnw__recorders_commit(const struct wnw__recorders *r, const struct wnw__record_pass *pass)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->commit)
            r->list[i].type->commit(r->list[i].rec, pass);
}

void wnw__recorders_tell(const struct wnw__recorders *r, int32_t from, int32_t to, enum wnw__event event)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->told)
            r->list[i].type->told(r->list[i].rec, from, to, event);
}

const char *wnw__recorders_cannot_rewind(const struct wnw__recorders *r, int32_t n_past)
{
    for (int32_t i = 0; i < count(r); i++)
        if (r->list[i].type->can_rewind && !r->list[i].type->can_rewind(r->list[i].rec, n_past))
            return r->list[i].type->name;
    return NULL;
}

void wnw__recorders_rewind(const struct wnw__recorders *r, int32_t n_past, int32_t n_layer)
{
    for (int32_t i = 0; i < count(r); i++) {
        const struct wnw__recorder_type *type = r->list[i].type;
        if (type->rewound)
            type->rewound(r->list[i].rec, n_past);
        else if (type->told)
            type->told(r->list[i].rec, 0, n_layer, WNW_EVENT_PASS_FAILED);
    }
}
