/* SPDX-License-Identifier: MIT */
/* What a plan sees of a session, and of tokens to come. */
#include "plan/source.h"
#include "session/planning/planning.h"
#include "session/session.h"

static int look_ahead(const struct wnw__plan_source *src, int32_t n, double budget, float *queries,
                      int32_t *made)
{
    return wnw__look_ahead(wnw__session_of_source(src), n, budget, queries, made);
}

int wnw__session_source(struct wnw__plan_source *src, wnw_session *s)
{
    WNW_TRY(wnw__session_source_plain(src, s));
    src->look_ahead = look_ahead;
    return WNW_OK;
}
