/* SPDX-License-Identifier: MIT */
/* Entries that stay are not touched. Recipes leave this part out: it is what every eviction method does. */
#include "policy/part.h"

extern const struct wnw__contents wnw__contents_plain;
const struct wnw__contents wnw__contents_plain = {
    .name = "plain",
    .about = "Entries that stay are left as they are.",
    .paper = "",
    .details = "The default, and the only part that recipes do not name.",
};
