/* SPDX-License-Identifier: MIT */
/* The model's tokenizer, which libllama runs. */
#ifndef WNW_TOKENS_H
#define WNW_TOKENS_H

#include "model/model.h"

/* Checks the vocabulary and has libllama read it, unless m->vocab has been opened; m->gguf and m->hp are set before. */
int wnw__vocab_open(struct wnw_model *m, const char *path);
void wnw__vocab_free(struct wnw_model *m);
int32_t wnw__vocab_size(const struct wnw_model *m);
/* wnw_detokenize with the texts of control tokens too. */
int wnw__detokenize_all(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text);

#endif
