/* SPDX-License-Identifier: MIT */
/* Finds a model's weights among the tensors of its file. */
#ifndef WNW_BIND_H
#define WNW_BIND_H

#include "model/model.h"

/* Sets m's w, layers and hp.n_vocab; parts and hyper-parameters are set before. A tensor that nothing of the model is
 * computed with is refused, because its numbers would be wrong. Errors: E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int wnw__bind(struct wnw_model *m);

#endif
