/* SPDX-License-Identifier: MIT */
/* The scorer scores KV heads itself: there is nothing to put together. */
#include "policy/part.h"

const wnw_aggregation wnw__aggregation_direct = {
    .part = {WNW_AGGREGATION_INIT, .name = "direct", .about = "The scorer scores KV heads itself.",
             .details = "For scorers that look at keys and values alone, and for those whose paper defines "
                        "the score of a "
                        "KV head as a whole."},
};
