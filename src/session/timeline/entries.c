/* SPDX-License-Identifier: MIT */
/* What the cache of a session holds, for programs and the other rooms. */
#include "base/err.h"
#include "session/session.h"
#include "winnow_tools.h"

int wnw_cache_get_stats(const wnw_session *s, wnw_cache_stats *out)
{
    wnw_cache_stats stats = wnw_cache_stats_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_cache_stats, out));
    wnw__sized_give(out, &stats);
    WNW_REQUIRE(s);
    const int64_t n = wnw__cache_entries(&s->cache), n_read = s->n_past + s->pos_shift;
    stats = (wnw_cache_stats){
        .n_entries = n,
        .bytes = wnw__cache_bytes(&s->cache),
        .bytes_entries = wnw__cache_entry_bytes(&s->cache),
        .bytes_full = wnw__cache_bytes_for(&s->cache, n_read < INT32_MAX ? (int32_t)n_read : INT32_MAX),
        .bytes_meta = wnw__cache_meta_bytes(&s->cache),
        .bytes_swa = wnw__cache_bytes_swa(&s->cache),
        .growth = s->cache.growth,
    };
    wnw__sized_give(out, &stats);
    return WNW_OK;
}

static bool head_exists(const wnw_session *s, int32_t il, int32_t ih)
{
    return s && il >= 0 && il < s->cache.n_layer && ih >= 0 && ih < s->cache.n_head_kv;
}

int32_t wnw_cache_n(const wnw_session *s, int32_t il, int32_t ih)
{
    return head_exists(s, il, ih) ? s->cache.layers[il].len[ih] : 0;
}

const int32_t *wnw_cache_positions(const wnw_session *s, int32_t il, int32_t ih)
{
    const struct wnw__kv_layer *l = head_exists(s, il, ih) ? &s->cache.layers[il] : NULL;
    return l && l->pos ? l->pos + l->off[ih] : NULL;
}
