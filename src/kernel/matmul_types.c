/* SPDX-License-Identifier: MIT */
#include "kernel/matmul.h"

#include <ggml.h>

#define WNW_X(id, name, k_unit, block, u_max, bytes) \
    {WNW_WEIGHT_##id, GGML_TYPE_##id, k_unit, block, u_max, bytes},
static const struct wnw__weight_type types[] = {WNW_WEIGHT_TYPES(WNW_X)};
#undef WNW_X

const struct wnw__weight_type *wnw__weight_type(int32_t ggml_type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].ggml_type == ggml_type)
            return &types[i];
    return NULL;
}
