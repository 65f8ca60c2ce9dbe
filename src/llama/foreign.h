/* SPDX-License-Identifier: MIT */
/* Models of families that arch/ does not have: libllama builds their graphs, and sessions are ours (decision 059). */
#ifndef WNW_FOREIGN_H
#define WNW_FOREIGN_H

#include "model/model.h"

/* Has libllama open a model that wnw__model_map has mapped, with its vocabulary, and sets what it computes with.
 * E_UNSUPPORTED: it has what sessions cannot compute, or this build has no backend. */
int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack);

#endif
