/* SPDX-License-Identifier: MIT */
/*
 * What a file must say before libllama may read it. libllama refuses many faults itself, but some numbers it divides by, loops over or
 * asserts on, and that ends the process. The families that winnow has graphs for have stricter checks of their own (model_hparams.c,
 * model_bind.c), and this one besides.
 */
#ifndef WNW_ADMIT_H
#define WNW_ADMIT_H

#include "model/model.h"

/* Checks the keys of a model that wnw__model_map has mapped, and the types of its tensors; llama/admit.h also has its vocabulary
 * checked. m->foreign.name is the family. E_FORMAT, E_UNSUPPORTED: the sentence names the key or the tensor. */
int wnw__admit_keys(const struct wnw_model *m);
int wnw__admit_tensors(const struct wnw_model *m);
/* Checks that each layer has the tensors that libllama computes with. After wnw__admit_keys, which bounds the numbers it reads. E_FORMAT,
 * E_UNSUPPORTED. */
int wnw__admit_layers(const struct wnw_model *m);

/* Whether a list, which has blanks between its words, has the word. */
bool wnw__admit_listed(const char *list, const char *word);

#endif
