/* SPDX-License-Identifier: MIT */
/* The library's own parts: a declaration for each line of parts.def. For those who name a part; a file that has one, or takes parts by
 * their names, does without, so that it need not be compiled again where a part is added. */
#ifndef WNW_PARTS_H
#define WNW_PARTS_H

#include "policy/part.h"

#define SCORER(x)       extern const wnw_scorer wnw__scorer_##x;
#define AGGREGATION(x)  extern const wnw_aggregation wnw__aggregation_##x;
#define LAYER_BUDGET(x) extern const wnw_layer_budget wnw__layer_budget_##x;
#define HEAD_BUDGET(x)  extern const wnw_head_budget wnw__head_budget_##x;
#define SELECTOR(x)     extern const wnw_selector wnw__selector_##x;
#define POSITIONS(x)    extern const wnw_positions wnw__positions_##x;
#define CONTENTS(x)     extern const wnw_contents wnw__contents_##x;
#define MORE(row)       row
#include "policy/parts.def"
#undef SCORER
#undef AGGREGATION
#undef LAYER_BUDGET
#undef HEAD_BUDGET
#undef SELECTOR
#undef POSITIONS
#undef CONTENTS
#undef MORE

#endif
