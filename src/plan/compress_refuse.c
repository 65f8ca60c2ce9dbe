/* SPDX-License-Identifier: MIT */
#include "method/count.h"
#include "plan/compress.h"

int wnw__blocks_refuse(const char *name, const wnw_blocks *b, int32_t n, int32_t n_keep)
{
    const int32_t thinned = wnw__blocks_thinned(b, n);
    if (thinned == 0)
        return wnw__fail(
            WNW_E_RANGE,
            "%s keeps all %d entries, too few for the first %d and two blocks of %d, but the size "
            "leaves %d per head; allow at least %d, give a ratio, or lower sink or lag",
            name, n, b->sink, b->lag, n_keep, n);
    return wnw__fail(
        WNW_E_RANGE,
        "%s always keeps the first %d and the last %d of %d entries and one of each of %d blocks "
        "between them, but the size leaves %d per head; allow at least %d, give a ratio, or lower sink "
        "or lag",
        name, b->sink, n - b->sink - thinned * b->lag, n, thinned, n_keep, wnw__blocks_least(b, n));
}
