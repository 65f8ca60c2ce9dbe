/* SPDX-License-Identifier: MIT */
/* Entries that stay are not changed, as in every pure eviction method. Recipes leave this part out. */
#include "policy/part.h"

const wnw_contents wnw__contents_plain = {
    .part = {WNW_CONTENTS_INIT, .name = "plain", .about = "Entries that stay are left as they are.",
             .details = "The default, and the only part that recipes do not name."},
};
