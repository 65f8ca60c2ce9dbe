/* SPDX-License-Identifier: MIT */
#include "app/kv.h"

#include "app/console.h"

#include <stdio.h>

int app_kv_check(struct app_kv *kv, const struct app_args *args, wnw_attn attn)
{
    const int status = wnw_kv_type_parse(&kv->type, args->kv_type);
    const int64_t n = args->kv_tail;
    if (status != WNW_OK)
        return app_fail_status(status);
    kv->tail = (int32_t)n;
    if (n == 0)
        return APP_OK;
    if (n < 32)
        return app_fail(APP_BAD_INPUT, "--kv-tail %d is out of range; it must be 0, or 32 to 1048576",
                        (int)n);
    if (kv->type != WNW_KV_Q8_0 && kv->type != WNW_KV_Q4_0)
        return app_fail(APP_BAD_INPUT,
                        "--kv-tail is for a quantised cache and this one is %s; give --kv-type q8_0 or q4_0, "
                        "or leave it out",
                        wnw_kv_type_name(kv->type));
    if (attn != WNW_ATTN_OWN)
        return app_fail(APP_BAD_INPUT, "--kv-tail needs --attn own");
    return APP_OK;
}

void app_kv_text(char *out, size_t size, const struct app_kv *kv)
{
    if (kv->tail > 0)
        snprintf(out, size, "%s, the last %d in f16", wnw_kv_type_name(kv->type), (int)kv->tail);
    else
        snprintf(out, size, "%s", wnw_kv_type_name(kv->type));
}
