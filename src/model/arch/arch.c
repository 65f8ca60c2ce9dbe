/* SPDX-License-Identifier: MIT */
#include "model/arch/arch.h"

#include <string.h>

extern const struct wnw__arch wnw__arch_llama;
extern const struct wnw__arch wnw__arch_qwen2;
extern const struct wnw__arch wnw__arch_qwen3;
extern const struct wnw__arch wnw__arch_gemma3;

static const struct wnw__arch *const archs[] = {
    &wnw__arch_llama,
    &wnw__arch_qwen2,
    &wnw__arch_qwen3,
    &wnw__arch_gemma3,
};

const char *wnw__arch_name(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof archs / sizeof *archs ? archs[i]->name : NULL;
}

const struct wnw__arch *wnw__arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (strcmp(archs[i]->name, name) == 0)
            return archs[i];
    }
    return NULL;
}

bool wnw__layer_is_swa(const struct wnw__hparams *hp, int32_t il)
{
    return hp->n_swa > 0 && hp->swa[il];
}
