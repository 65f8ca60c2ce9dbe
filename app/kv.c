/* SPDX-License-Identifier: MIT */
#include "app/kv.h"

#include "app/console.h"
#include "app/values.h"
#include "winnow_tools.h"

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

/* --kv-type auto needs a size in bytes to choose by. */
static int check_automatic(struct app_kv *kv, const struct app_args *args)
{
    kv->automatic = true;
    kv->type = WNW_KV_F16;
    if (args->kv_bytes == APP_UNSET || args->kv_bytes < 1) /* 0 where a command has no such option */
        return app_fail(APP_BAD_INPUT,
                        "--kv-type auto chooses how the bytes of --kv-bytes are used; give a size with "
                        "--kv-bytes, or a type");
    if (args->kv_tail != 0)
        return app_fail(APP_BAD_INPUT,
                        "--kv-tail goes with a type that is named; leave it out, or give --kv-type "
                        "q8_0 or q4_0 in place of auto");
    return APP_OK;
}

int app_kv_check(struct app_kv *kv, const struct app_args *args, wnw_attn attn)
{
    const bool automatic = strcmp(args->kv_type, "auto") == 0;
    const int status = automatic ? WNW_OK : wnw_kv_type_parse(&kv->type, args->kv_type);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (strcmp(args->kv_rotate, "on") != 0 && strcmp(args->kv_rotate, "off") != 0)
        return app_fail(APP_BAD_INPUT, "--kv-rotate '%.40s' is unknown; use on or off", args->kv_rotate);
    kv->unrotated = strcmp(args->kv_rotate, "off") == 0;
    if (automatic)
        return check_automatic(kv, args);
    const int rc = check_tail(kv, args->kv_tail, "--kv-tail");
    if (rc != APP_OK || kv->tail == 0)
        return rc;
    if (attn == WNW_ATTN_GGML)
        return app_fail(APP_BAD_INPUT, "--kv-tail needs --attn own");
    return APP_OK;
}

/* ---- The type for a size in bytes ---- */

/* What n entries in every KV head of the layers that policies act on are allocated in. */
static uint64_t bytes_of(wnw_kv_type type, int64_t n, const wnw_model_info *info)
{
    return wnw_kv_bytes(type, info->n_embd_head, info->n_head_kv, info->n_layer - info->n_layer_swa,
                        (int32_t)(n < INT32_MAX ? n : INT32_MAX));
}

/* Where everything fits, nothing is rounded. Where something must go, q8_0 holds 1.9 entries in the place of one, and loses
 * less than they are worth; q4_0 loses more. */
void app_kv_choose(struct app_kv *kv, uint64_t bytes, int64_t n, const wnw_model_info *info)
{
    const bool fits = bytes_of(WNW_KV_F16, n, info) <= bytes,
               whole_blocks = bytes_of(WNW_KV_Q8_0, 1, info) > 0;
    kv->type = !fits && whole_blocks ? WNW_KV_Q8_0 : WNW_KV_F16;
}

void app_kv_tell(const struct app_kv *kv, uint64_t bytes, int64_t n, const wnw_model_info *info)
{
    const double mib = 1048576.0, f16 = (double)bytes_of(WNW_KV_F16, n, info) / mib,
                 q8 = (double)bytes_of(WNW_KV_Q8_0, n, info) / mib, size = (double)bytes / mib;
    char text[64];
    app_kv_text(text, sizeof text, kv);
    if (f16 <= size)
        app_note("cache %s, because all %lld tokens fit: %.2f of %.2f MiB", text, (long long)n, f16, size);
    else if (kv->type == WNW_KV_F16)
        app_note("cache %s, because heads of %d elements are no whole blocks of q8_0", text,
                 info->n_embd_head);
    else
        app_note("cache %s, because %.2f MiB are less than the %.2f MiB of %lld tokens in f16: %s", text,
                 size, f16, (long long)n,
                 q8 <= size ? "in q8_0 all of them fit"
                            : "in q8_0 more of them stay, which answered better at equal bytes");
}

/* ---- Lists ---- */

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
