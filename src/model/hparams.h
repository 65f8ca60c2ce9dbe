/* SPDX-License-Identifier: MIT */
/* The hyper-parameters of a model, from the keys of its file. */
#ifndef WNW_HPARAMS_H
#define WNW_HPARAMS_H

#include "model/model.h"

/* Reads and checks m->hp; m's gguf and arch are set before. Keys that change the arithmetic and that winnow has no code
 * for are refused unless they hold the value that changes nothing. n_vocab comes later, from the tensors. Errors:
 * E_FORMAT, E_UNSUPPORTED. */
int wnw__hparams_read(struct wnw_model *m);

#endif
