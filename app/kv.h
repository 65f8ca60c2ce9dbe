/* SPDX-License-Identifier: MIT */
/* How keys and values are stored: --kv-type and --kv-tail. */
#ifndef WNW_APP_KV_H
#define WNW_APP_KV_H

#include "app/args.h"
#include "winnow.h"

struct app_kv {
    wnw_kv_type type;
    int32_t tail; /* 0 = none */
};

/* Reads both options. attn: the attention that will read the cache. Returns an exit code. */
int app_kv_check(struct app_kv *kv, const struct app_args *args, wnw_attn attn);
/* Writes "f16" or "q4_0, the last 128 in f16". */
void app_kv_text(char *out, size_t size, const struct app_kv *kv);

#endif
