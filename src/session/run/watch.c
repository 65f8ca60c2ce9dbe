/* SPDX-License-Identifier: MIT */
/* The attention of generated tokens, for programs: winnow_method.h. */
#include "base/err.h"
#include "observe/newest.h"
#include "observe/recorders.h"
#include "session/run/run.h"
#include "session/session.h"
#include "winnow_method.h"

int wnw_session_watch(wnw_session *s, bool on)
{
    WNW_REQUIRE(s);
    return wnw__session_record(s, wnw__newest_recorder.name, on);
}

const float *wnw_session_attention(const wnw_session *s, int32_t il, int32_t *n)
{
    if (n)
        *n = 0;
    const struct wnw__newest *newest =
        s && n ? wnw__recorders_find(&s->recorders, &wnw__newest_recorder) : NULL;
    if (!newest || il < 0 || il >= s->cache.n_layer)
        return NULL;
    return wnw__newest_rows(newest, il, n);
}
