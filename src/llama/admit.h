/* SPDX-License-Identifier: MIT */
/* The check that comes before libllama reads a model. */
#ifndef WNW_LLAMA_ADMIT_H
#define WNW_LLAMA_ADMIT_H

#include "model/model.h"

/* Checks the keys, tensors and vocabulary of a model that wnw__model_map has mapped, and sets m->foreign.name. E_FORMAT,
 * E_UNSUPPORTED, E_NOMEM. */
int wnw__admit(struct wnw_model *m);

#endif
