/* SPDX-License-Identifier: MIT */
/* The steps of opening a model: hyper-parameters from the keys of its file, weights from its tensors, and their layouts. */
#ifndef WNW_MODEL_IMPL_H
#define WNW_MODEL_IMPL_H

#include "model/model.h"

/* Reads and checks m->hp; m's gguf and arch are set before. Keys that change the arithmetic and that winnow has no code
 * for are refused unless they hold the value that changes nothing. n_vocab comes later, from the tensors. Errors:
 * E_FORMAT, E_UNSUPPORTED. */
int wnw__hparams_read(struct wnw_model *m);

/* Sets *key to the key of the file, of a family that winnow has graphs for, that only libllama's graphs compute with: of experts, of
 * YaRN, or one whose meaning depends on libllama's version; NULL = there is none. Other keys than YaRN's that neither computes with are refused here. Errors: E_FORMAT, E_UNSUPPORTED. */
int wnw__hparams_by_libllama(const struct wnw_model *m, const char **key);

/* Sets m's w, layers and hp.n_vocab; parts and hyper-parameters are set before. A tensor that nothing of the model is
 * computed with is refused, because its numbers would be wrong. Errors: E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int wnw__bind(struct wnw_model *m);

/* Whether ggml's CPU backend can multiply with weights of the type and read single rows of them. */
bool wnw__has_products(enum ggml_type type);
/* E_UNSUPPORTED where a tensor, whose numbers are read one by one (is_float) or multiplied with, has a type that cannot be. */
int wnw__check_tensor_type(const struct ggml_tensor *t, bool is_float);

/* Copies weights that ggml can hold in a faster CPU layout to that layout and redirects m's pointers to the
 * copies. */
int wnw__repack(struct wnw_model *m);

#endif
