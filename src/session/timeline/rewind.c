/* SPDX-License-Identifier: MIT */
/* Taking back tokens that were read, where the session is then the one that it was before it read them. */
#include "session/session.h"

/* The rules count generated tokens from the last compression on. Only of the last ones, which follow each other, is it
 * known that they were generated. */
static int check_count(const wnw_session *s, int32_t n_back)
{
    if (s->rules.n_decoded <= s->n_run || n_back <= s->n_run)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "the rules count generated tokens up to the next compression, and how many of the last %d tokens "
        "were generated is not known; go back by at most %d",
        (int)n_back, (int)s->n_run);
}

static int check(const wnw_session *s, int32_t n_past)
{
    if (s->recurrent)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the recurrent layers of this model keep one state of all tokens: going back to %d of %d is not "
            "possible; read from the beginning, or go on from a copy that was made there",
            (int)n_past, (int)s->n_past);
    if (n_past < s->n_judged)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the first %d tokens were compressed together, so that what went cannot be told from what would "
            "have stayed of the first %d; go back to %d or more, or read from the beginning",
            (int)s->n_judged, (int)n_past, (int)s->n_judged);
    if (s->cache.aux_planes[WNW_AUX_ATTN_SUM] > 0 || s->cache.aux_planes[WNW_AUX_ATTN_MAX] > 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "a policy adds up the attention that entries receive, and the later tokens' is in the sums; end "
            "observing before going back, or read from the beginning");
    const char *stuck = wnw__recorders_cannot_rewind(&s->recorders, n_past);
    if (stuck)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "what a policy has noted (%s) of the first %d tokens is not there without the later ones; end "
            "observing before going back, or read from the beginning",
            stuck, (int)n_past);
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        WNW_TRY(wnw__cache_can_rewind(&s->cache, il, n_past));
    return check_count(s, s->n_past - n_past);
}

static void take_back(wnw_session *s, int32_t n_past)
{
    struct wnw__rules *r = &s->rules;
    const int32_t n_back = s->n_past - n_past, n_run = n_back < s->n_run ? n_back : s->n_run;
    wnw__recorders_rewind(&s->recorders, n_past, s->cache.n_layer);
    wnw__cache_rewind(&s->cache, n_past);
    r->n_decoded -= n_run < r->n_decoded ? n_run : r->n_decoded;
    s->n_run -= n_run;
    s->n_past = n_past;
    s->has_logits = false;
}

int wnw_session_rewind(wnw_session *s, int32_t n_past)
{
    WNW_REQUIRE(s);
    if (n_past < 0 || n_past > s->n_past)
        return wnw__fail(WNW_E_RANGE, "%d tokens were read; going back to %d is not possible", (int)s->n_past,
                         (int)n_past);
    if (n_past == s->n_past)
        return WNW_OK;
    if (n_past == 0)
        return wnw__session_forget(s);
    WNW_TRY(check(s, n_past));
    take_back(s, n_past);
    return WNW_OK;
}
