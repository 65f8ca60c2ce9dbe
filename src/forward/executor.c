/* SPDX-License-Identifier: MIT */
#include "forward/executor.h"

#include "forward/engine_impl.h"

int wnw__recurrent_new(struct wnw__recurrent **out, struct wnw_engine *e)
{
    *out = NULL;
    return e->m->executor && e->m->executor->recurrent_new ? e->m->executor->recurrent_new(out, e->run_by)
                                                           : WNW_OK;
}

void wnw__recurrent_free(struct wnw__recurrent *r)
{
    if (r)
        r->by->recurrent_free(r);
}

int wnw__recurrent_copy(struct wnw__recurrent *to, struct wnw__recurrent *from)
{
    return to && from ? to->by->recurrent_copy(to, from) : WNW_OK;
}

void wnw__recurrent_clear(struct wnw__recurrent *r)
{
    if (r)
        r->by->recurrent_clear(r);
}

int wnw__recurrent_get(struct wnw__recurrent *r, const uint8_t **bytes, size_t *n)
{
    *bytes = NULL;
    *n = 0;
    return r ? r->by->recurrent_get(r, bytes, n) : WNW_OK;
}

int wnw__recurrent_set(struct wnw__recurrent *r, const uint8_t *bytes, size_t n, int32_t n_read)
{
    return r ? r->by->recurrent_set(r, bytes, n, n_read) : WNW_OK;
}
