/* SPDX-License-Identifier: MIT */
/* Reading keys of a model file. */
#include "model/arch/arch.h"

#include <math.h>
#include <stdio.h>

int64_t wnw__key_find(const struct gguf_context *g, const char *key, char full[WNW_KEY_MAX])
{
    const char *arch = key[0] == '.' ? wnw__key_str(g, "general.architecture") : "";
    snprintf(full, WNW_KEY_MAX, "%s%s", arch ? arch : "", key);
    return gguf_find_key(g, full);
}

size_t wnw__key_count(const struct gguf_context *g, int64_t id)
{
    return gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY ? gguf_get_arr_n(g, id) : 1;
}

bool wnw__key_number(const struct gguf_context *g, int64_t id, size_t i, double *out)
{
    const bool array = gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY;
    const enum gguf_type type = array ? gguf_get_arr_type(g, id) : gguf_get_kv_type(g, id);
    if (type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY)
        return false;
    const void *at = array ? gguf_get_arr_data(g, id) : gguf_get_val_data(g, id);
    switch (type) {
#define WNW_X(id, ctype)                       \
    case GGUF_TYPE_##id:                       \
        *out = (double)((const ctype *)at)[i]; \
        return true;
        WNW_X(BOOL, int8_t)
        WNW_X(UINT8, uint8_t)
        WNW_X(INT8, int8_t)
        WNW_X(UINT16, uint16_t)
        WNW_X(INT16, int16_t)
        WNW_X(UINT32, uint32_t)
        WNW_X(INT32, int32_t)
        WNW_X(UINT64, uint64_t)
        WNW_X(INT64, int64_t)
        WNW_X(FLOAT32, float)
        WNW_X(FLOAT64, double)
#undef WNW_X
    default:
        return false;
    }
}

/* The type is checked first, because gguf_get_val_* aborts on a wrong type. */
int wnw__key_i32(const struct gguf_context *g, const char *key, int32_t def, int32_t *out)
{
    char full[WNW_KEY_MAX];
    const int64_t id = wnw__key_find(g, key, full);
    int64_t v;
    *out = def;
    if (id < 0)
        return WNW_OK;
    switch (gguf_get_kv_type(g, id)) {
    case GGUF_TYPE_UINT32:
        v = gguf_get_val_u32(g, id);
        break;
    case GGUF_TYPE_INT32:
        v = gguf_get_val_i32(g, id);
        break;
    case GGUF_TYPE_UINT64:
        v = gguf_get_val_u64(g, id) <= INT32_MAX ? (int64_t)gguf_get_val_u64(g, id) : -1;
        break;
    case GGUF_TYPE_UINT16:
        v = gguf_get_val_u16(g, id);
        break;
    case GGUF_TYPE_ARRAY:
        return wnw__fail(WNW_E_UNSUPPORTED, "GGUF key %s is a list; one number for all layers is supported",
                         full);
    default:
        return wnw__fail(WNW_E_FORMAT, "GGUF key %s is not an integer", full);
    }
    if (v < 0 || v > INT32_MAX)
        return wnw__fail(WNW_E_FORMAT, "GGUF key %s is out of range", full);
    *out = (int32_t)v;
    return WNW_OK;
}

int wnw__key_f32(const struct gguf_context *g, const char *key, float def, float *out)
{
    char full[WNW_KEY_MAX];
    const int64_t id = wnw__key_find(g, key, full);
    *out = def;
    if (id < 0)
        return WNW_OK;
    if (gguf_get_kv_type(g, id) == GGUF_TYPE_FLOAT32)
        *out = gguf_get_val_f32(g, id);
    else if (gguf_get_kv_type(g, id) == GGUF_TYPE_FLOAT64)
        *out = (float)gguf_get_val_f64(g, id);
    else
        return wnw__fail(WNW_E_FORMAT, "GGUF key %s is not a number", full);
    if (!isfinite(*out))
        return wnw__fail(WNW_E_FORMAT, "GGUF key %s is not finite", full);
    return WNW_OK;
}

const char *wnw__key_str(const struct gguf_context *g, const char *key)
{
    char full[WNW_KEY_MAX];
    const int64_t id = key[0] == '.' ? wnw__key_find(g, key, full) : gguf_find_key(g, key);
    if (id < 0 || gguf_get_kv_type(g, id) != GGUF_TYPE_STRING)
        return NULL;
    return gguf_get_val_str(g, id);
}
