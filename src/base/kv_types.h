/* SPDX-License-Identifier: MIT */
/* Types of keys and values, which have other numbers in ggml. */
#ifndef WNW_BASE_KV_TYPES_H
#define WNW_BASE_KV_TYPES_H

#include "winnow.h"

#include <ggml.h>
#include <stdbool.h>

static inline enum ggml_type wnw__ggml_kv_type(wnw_kv_type type)
{
    switch (type) {
    case WNW_KV_F32:
        return GGML_TYPE_F32;
    case WNW_KV_Q8_0:
        return GGML_TYPE_Q8_0;
    case WNW_KV_Q4_0:
        return GGML_TYPE_Q4_0;
    case WNW_KV_F16:
        break;
    }
    return GGML_TYPE_F16;
}

/* Sets *out to the type of winnow that ggml's is. false: there is none; *out is WNW_KV_F32 then. */
static inline bool wnw__kv_type_of_ggml(wnw_kv_type *out, enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F32:
        *out = WNW_KV_F32;
        return true;
    case GGML_TYPE_F16:
        *out = WNW_KV_F16;
        return true;
    case GGML_TYPE_Q8_0:
        *out = WNW_KV_Q8_0;
        return true;
    case GGML_TYPE_Q4_0:
        *out = WNW_KV_Q4_0;
        return true;
    default:
        *out = WNW_KV_F32;
        return false;
    }
}

#endif
