/* SPDX-License-Identifier: MIT */
/* How keys and values are stored: --kv-type, --kv-tail and --kv-rotate, and the type that is chosen for a size in bytes. */
#ifndef WNW_APP_KV_H
#define WNW_APP_KV_H

#include "app/args.h"
#include "winnow.h"

struct app_kv {
    wnw_kv_type type;
    int32_t tail; /* 0 = none */
    bool unrotated;
    bool automatic; /* --kv-type auto: the type is what app_kv_choose says, f16 until then */
};

enum { APP_KV_WORD = 32 }; /* bytes of a cache in a list, with the NUL */

/* Reads the options. attn: the attention that will read the cache. Returns an exit code. */
int app_kv_check(struct app_kv *kv, const struct app_args *args, wnw_attn attn);
/* Chooses the element type of a cache that holds n tokens of the model in at most `bytes` bytes. */
void app_kv_choose(struct app_kv *kv, uint64_t bytes, int64_t n, const wnw_model_info *info);
/* Says on one line of stderr what was chosen and why. */
void app_kv_tell(const struct app_kv *kv, uint64_t bytes, int64_t n, const wnw_model_info *info);
/* Whether rows of the cache are rotated before they are rounded. */
bool app_kv_rotates(const struct app_kv *kv);
/* Reads a cache as lists name it, TYPE[:TAIL][:unrotated], "q4_0:128" say. Returns an exit code. */
int app_kv_parse(struct app_kv *kv, const char *word);
/* Writes it in that form; out has room for APP_KV_WORD bytes. */
void app_kv_word(char *out, const struct app_kv *kv);
bool app_kv_equal(const struct app_kv *a, const struct app_kv *b);
/* Writes "f16" or "q4_0, the last 128 in f16, not rotated". */
void app_kv_text(char *out, size_t size, const struct app_kv *kv);

#endif
