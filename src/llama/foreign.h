/* SPDX-License-Identifier: MIT */
/* Models of families that arch/ does not have: libllama builds their graphs, and sessions are ours (decision 059). */
#ifndef WNW_FOREIGN_H
#define WNW_FOREIGN_H

#include "model/model.h"

struct llama_model;
struct wnw__drive_layer; /* bridge/drive/drive.h */
struct wnw__executor;    /* forward/executor.h */

/* Has libllama open a model that wnw__model_map has mapped, with its vocabulary, and sets what it computes with.
 * E_UNSUPPORTED: it has what sessions cannot compute, or this build has no backend. */
int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack);

/* ---- Contexts of libllama that an engine drives (foreign_context.c) ---- */

struct wnw__foreign_context;

/* Makes a context for batches of n_row rows, and looks at the graphs of a prompt of n_look. To be freed, also after a
 * failure. */
int wnw__foreign_context_new(struct wnw__foreign_context **out, struct llama_model *model, int32_t n_row,
                             int32_t n_look, int32_t n_threads);
void wnw__foreign_context_free(struct wnw__foreign_context *f);
/* The layers that the graph showed, as wnw__drive_layers. */
int wnw__foreign_context_layers(const struct wnw__foreign_context *f, const struct wnw__drive_layer **layers,
                                int32_t *n);
/* What runs engines of such models by contexts of their own. */
extern const struct wnw__executor wnw__foreign_executor;

#endif
