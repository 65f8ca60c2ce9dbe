/* SPDX-License-Identifier: MIT */
/* Which tokens a sample of a text repeats (WNW_PASS_SAMPLE). */
#include "method/sample_places.h"

/* Tokens of the sample of n. What leads to the only place of a short text takes no more than half of it. */
static int32_t sampled(const wnw_sample_size *size, int32_t n)
{
    int32_t some = size->every > 0 ? n / size->every : 0;
    some = some > size->most ? size->most : some;
    some = some < size->least ? size->least : some;
    const int32_t half = n - n / 2, room = n - 2 * WNW_SAMPLE_HINT > half ? n - 2 * WNW_SAMPLE_HINT : half;
    return some < room ? some : room;
}

/* Places for m of n tokens, each with what leads to it, and as much after it, in its slice. */
static int32_t fitting(const wnw_sample_size *size, int32_t n, int32_t m)
{
    int32_t k = size->place > 0 ? m / size->place : 1;
    k = k < WNW_SAMPLE_PLACES ? k : WNW_SAMPLE_PLACES;
    while (k > 1 && n / k < m / k + (m % k > 0) + 2 * WNW_SAMPLE_HINT)
        k--;
    return k > 1 ? k : 1;
}

int32_t wnw_sample_places(const wnw_sample_size *size, int32_t from, int32_t to,
                          wnw_sample_place place[WNW_SAMPLE_PLACES])
{
    if (!size || !place || from < 0 || to <= from)
        return 0;
    const int32_t n = to - from, m = sampled(size, n), k = m > 0 ? fitting(size, n, m) : 0;
    for (int32_t i = 0; i < k; i++) {
        const int32_t first = (int32_t)((int64_t)i * n / k), last = (int32_t)((int64_t)(i + 1) * n / k),
                      has = m / k + (i < m % k), at = first + (last - first - has) / 2,
                      lead = at - WNW_SAMPLE_HINT;
        place[i] = (wnw_sample_place){
            .lead = from + (lead > 0 ? lead : 0), .from = from + at, .to = from + at + has};
    }
    return k;
}

int32_t wnw_sample_fed(const wnw_sample_size *size, int32_t n)
{
    wnw_sample_place place[WNW_SAMPLE_PLACES];
    const int32_t k = wnw_sample_places(size, 0, n, place);
    int32_t fed = 0;
    for (int32_t i = 0; i < k; i++)
        fed += place[i].to - place[i].lead;
    return fed;
}

int32_t wnw__sample_number(const wnw_sample_place *places, int32_t n_places, int32_t token)
{
    int32_t before = 0;
    for (int32_t k = 0; k < n_places; k++) {
        if (token >= places[k].from && token < places[k].to)
            return before + token - places[k].from;
        before += places[k].to - places[k].from;
    }
    return -1;
}
