/* SPDX-License-Identifier: MIT */
/* Names and sizes of the types of cached rows. */
#include "base/err.h"
#include "kernel/kernel.h"
#include "winnow_tools.h"

#include <string.h>

static const char *const kv_type_names[] = {
    [WNW_KV_F16] = "f16", [WNW_KV_F32] = "f32", [WNW_KV_Q8_0] = "q8_0", [WNW_KV_Q4_0] = "q4_0"};

const char *wnw_kv_type_name(wnw_kv_type t)
{
    return (size_t)t < sizeof kv_type_names / sizeof *kv_type_names ? kv_type_names[t] : "?";
}

int wnw_kv_type_parse(wnw_kv_type *out, const char *name)
{
    WNW_REQUIRE(out);
    *out = WNW_KV_F16;
    WNW_REQUIRE(name);
    for (size_t i = 0; i < sizeof kv_type_names / sizeof *kv_type_names; i++) {
        if (strcmp(name, kv_type_names[i]) == 0) {
            *out = (wnw_kv_type)i;
            return WNW_OK;
        }
    }
    return wnw__fail(WNW_E_ARG, "unknown KV type '%.20s'; use f16, f32, q8_0 or q4_0", name);
}

size_t wnw_kv_entry_bytes(wnw_kv_type t, int32_t n_embd_head)
{
    return 2 * wnw__row_bytes(t, n_embd_head);
}
