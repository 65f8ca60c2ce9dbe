/* SPDX-License-Identifier: MIT */
#include "app/kv.h"

#include "app/console.h"
#include "app/values.h"

#include <stdio.h>
#include <string.h>

static bool is_quantised(wnw_kv_type type)
{
    return type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0;
}

bool app_kv_rotates(const struct app_kv *kv)
{
    return is_quantised(kv->type) && !kv->unrotated;
}

/* The limits of a tail; `option` is the name of the option that sets it. */
static int check_tail(struct app_kv *kv, int64_t n, const char *option)
{
    kv->tail = (int32_t)n;
    if (n == 0)
        return APP_OK;
    if (n < 32 || n > 1048576)
        return app_fail(APP_BAD_INPUT, "%s %lld is out of range; it must be 0, or 32 to 1048576", option,
                        (long long)n);
    if (!is_quantised(kv->type))
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
    if (strcmp(args->kv_rotate, "on") != 0 && strcmp(args->kv_rotate, "off") != 0)
        return app_fail(APP_BAD_INPUT, "--kv-rotate '%.40s' is unknown; use on or off", args->kv_rotate);
    kv->unrotated = strcmp(args->kv_rotate, "off") == 0;
    const int rc = check_tail(kv, args->kv_tail, "--kv-tail");
    if (rc != APP_OK || kv->tail == 0)
        return rc;
    if (attn == WNW_ATTN_GGML)
        return app_fail(APP_BAD_INPUT, "--kv-tail needs --attn own");
    return APP_OK;
}

int app_kv_parse(struct app_kv *kv, const char *word)
{
    static const char unrotated[] = ":unrotated";
    char rest[APP_KV_WORD];
    size_t len = strlen(word);
    int64_t tail = 0;
    kv->unrotated = len > strlen(unrotated) && strcmp(word + len - strlen(unrotated), unrotated) == 0;
    len -= kv->unrotated ? strlen(unrotated) : 0;
    if (len >= sizeof rest)
        return app_fail(
            APP_BAD_INPUT,
            "'%.40s' is no type of cache; write TYPE, TYPE:TAIL, as q4_0:128, or one of these and "
            ":unrotated",
            word);
    memcpy(rest, word, len);
    rest[len] = '\0';
    char *colon = strchr(rest, ':');
    if (colon)
        *colon = '\0';
    const int status = wnw_kv_type_parse(&kv->type, rest);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (colon && !app_parse_int(&tail, colon + 1))
        return app_fail(APP_BAD_INPUT, "the tail of '%.40s' is not a whole number", word);
    if (kv->unrotated && !is_quantised(kv->type))
        return app_fail(APP_BAD_INPUT, "a cache of %s is never rotated: leave ':unrotated' out of '%.40s'",
                        wnw_kv_type_name(kv->type), word);
    return check_tail(kv, tail, "a tail in --kv-types");
}

void app_kv_word(char *out, const struct app_kv *kv)
{
    const char *rest = is_quantised(kv->type) && kv->unrotated ? ":unrotated" : "";
    if (kv->tail > 0)
        snprintf(out, APP_KV_WORD, "%s:%d%s", wnw_kv_type_name(kv->type), (int)kv->tail, rest);
    else
        snprintf(out, APP_KV_WORD, "%s%s", wnw_kv_type_name(kv->type), rest);
}

bool app_kv_equal(const struct app_kv *a, const struct app_kv *b)
{
    return a->type == b->type && a->tail == b->tail && app_kv_rotates(a) == app_kv_rotates(b);
}

void app_kv_text(char *out, size_t size, const struct app_kv *kv)
{
    const char *rest = is_quantised(kv->type) && kv->unrotated ? ", not rotated" : "";
    if (kv->tail > 0)
        snprintf(out, size, "%s, the last %d in f16%s", wnw_kv_type_name(kv->type), (int)kv->tail, rest);
    else
        snprintf(out, size, "%s%s", wnw_kv_type_name(kv->type), rest);
}
