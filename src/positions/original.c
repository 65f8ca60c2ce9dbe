/* SPDX-License-Identifier: MIT */
/* Keys keep the rotation of the position at which their token was read, and the next token gets the position
 * after the last token read. Nearly every method assumes this; it is the only rule under which a compressed
 * cache differs from the full one by its missing entries alone. */
#include "policy/part.h"

const wnw_positions wnw__positions_original = {
    .part = {WNW_POSITIONS_INIT, .name = "original",
             .about =
                 "Kept tokens keep their positions, and the next token continues after the last one read.",
             .details = "Distances between kept tokens are those of the text. A timeline ends with the "
                        "model's context, "
                        "however little is kept."},
};
