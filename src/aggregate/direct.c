/* SPDX-License-Identifier: MIT */
/* The scorer scores KV heads itself: there is nothing to put together. */
#include "policy/part.h"

extern const struct wnw__aggregation wnw__aggregation_direct;
const struct wnw__aggregation wnw__aggregation_direct = {
    .name = "direct",
    .about = "The scorer scores KV heads itself.",
    .paper = "",
    .details =
        "For scorers that look at keys and values alone, and for those whose paper defines the score of a "
        "KV head as a whole.",
};
