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
