/* SPDX-License-Identifier: MIT */
#include "app/kv.h"

#include "app/console.h"
#include "app/values.h"

#include <stdio.h>
#include <string.h>

/* The limits of a tail; `option` is what people wrote it behind. */
static int check_tail(struct app_kv *kv, int64_t n, const char *option)
{
    kv->tail = (int32_t)n;
    if (n == 0)
        return APP_OK;
    if (n < 32 || n > 1048576)
        return app_fail(APP_BAD_INPUT, "%s %lld is out of range; it must be 0, or 32 to 1048576", option,
                        (long long)n);
    if (kv->type != WNW_KV_Q8_0 && kv->type != WNW_KV_Q4_0)
        return app_fail(APP_BAD_INPUT,
                        "%s is for a quantised cache and this one is %s; give --kv-type q8_0 or q4_0, "
                        "or leave it out",
                        option, wnw_kv_type_name(kv->type));
    return APP_OK;
}

int app_kv_check(struct app_kv *kv, const struct app_args *args, wnw_attn attn)
{
    const int status = wnw_kv_type_parse(&kv->type, args->kv_type);
    if (status != WNW_OK)
        return app_fail_status(status);
    const int rc = check_tail(kv, args->kv_tail, "--kv-tail");
    if (rc != APP_OK || kv->tail == 0)
        return rc;
    if (attn == WNW_ATTN_GGML)
        return app_fail(APP_BAD_INPUT, "--kv-tail needs --attn own");
    return APP_OK;
}

int app_kv_parse(struct app_kv *kv, const char *word)
{
    char type[APP_KV_WORD];
    const size_t len = strcspn(word, ":");
    int64_t tail = 0;
    if (len >= sizeof type)
        return app_fail(APP_BAD_INPUT, "'%.40s' is no type of cache; write TYPE or TYPE:TAIL, as q4_0:128",
                        word);
    memcpy(type, word, len);
    type[len] = '\0';
    const int status = wnw_kv_type_parse(&kv->type, type);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (word[len] && !app_parse_int(&tail, word + len + 1))
        return app_fail(APP_BAD_INPUT, "the tail of '%.40s' is not a whole number", word);
    return check_tail(kv, tail, "a tail in --kv-types");
}

void app_kv_word(char *out, const struct app_kv *kv)
{
    if (kv->tail > 0)
        snprintf(out, APP_KV_WORD, "%s:%d", wnw_kv_type_name(kv->type), (int)kv->tail);
    else
        snprintf(out, APP_KV_WORD, "%s", wnw_kv_type_name(kv->type));
}

bool app_kv_equal(const struct app_kv *a, const struct app_kv *b)
{
    return a->type == b->type && a->tail == b->tail;
}

void app_kv_text(char *out, size_t size, const struct app_kv *kv)
{
    if (kv->tail > 0)
        snprintf(out, size, "%s, the last %d in f16", wnw_kv_type_name(kv->type), (int)kv->tail);
    else
        snprintf(out, size, "%s", wnw_kv_type_name(kv->type));
}
