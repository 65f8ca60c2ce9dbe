/* SPDX-License-Identifier: MIT */
/* Entries that stay are not touched. Recipes leave this part out: it is what every eviction method does. */
#include "policy/part.h"

const wnw_contents wnw__contents_plain = {
    .part = {WNW_CONTENTS_INIT, .name = "plain", .about = "Entries that stay are left as they are.",
             .details = "The default, and the only part that recipes do not name."},
};
