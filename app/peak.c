/* SPDX-License-Identifier: MIT */
#include "app/peak.h"

#include "app/console.h"
#include "base/err.h"
#include "base/room.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <math.h>

/* A chunk that the peak decides on has LEAST to MOST tokens. */
enum { LEAST = 64, MOST = 2048 };

static double slack_of(const struct app_args *args)
{
    return args->chunk_slack > 1 ? args->chunk_slack : 1;
}

int app_peak_check(const struct app_args *args, const wnw_size *size, wnw_phase phase)
{
    const bool peak = args->kv_peak > 0;
    if (!peak && args->chunk_slack > 0 && phase != WNW_PHASE_CHUNK)
        return app_fail(APP_BAD_INPUT,
                        "--chunk-slack says what stays between chunks; give --evict chunk or --kv-peak");
    if (!peak)
        return APP_OK;
    if (size->kind == WNW_SIZE_NONE)
        return app_fail(APP_BAD_INPUT,
                        "--kv-peak bounds the cache while a prompt is read; say what stays of it with "
                        "--ratio, --budget or --kv-bytes");
    if (size->kind == WNW_SIZE_BYTES && size->bytes >= (uint64_t)args->kv_peak)
        return app_fail(APP_BAD_INPUT,
                        "--kv-peak %lld leaves no room for a chunk beside --kv-bytes %llu; give a larger "
                        "peak or a smaller size",
                        (long long)args->kv_peak, (unsigned long long)size->bytes);
    if (phase == WNW_PHASE_LAYER)
        return app_fail(APP_BAD_INPUT,
                        "--kv-peak is kept by reading in chunks, not by layer; leave out --evict layer");
    return APP_OK;
}

/* What n entries in every KV head take, of the layers that policies act on. */
static uint64_t bytes_of(const struct app_peak_of *of, int64_t n)
{
    const wnw_model_info *info = of->info;
    const int32_t n_layer = info->n_layer - info->n_layer_swa,
                  n_now = (int32_t)(n < INT32_MAX ? n : INT32_MAX);
    const int64_t n_f16 = of->kv->tail > 0 ? (int64_t)of->kv->tail + WNW_CACHE_FIRST : 0;
    uint64_t bytes = wnw_kv_bytes(of->kv->type, info->n_embd_head, info->n_head_kv, n_layer, n_now);
    if (n_f16 > 0)
        bytes += wnw_kv_bytes(WNW_KV_F16, info->n_embd_head, info->n_head_kv, n_layer,
                              (int32_t)(n_f16 < n ? n_f16 : n));
    return bytes;
}

/* Entries that a head has room for where it holds n. */
static int64_t room_of(const struct app_peak_of *of, int64_t n)
{
    return of->on_devices ? wnw__device_most_rows(n) : n + WNW_CACHE_GROWTH;
}

/* The most entries, up to n, that every head can hold where their room takes no more than these bytes. */
static int64_t held_in(const struct app_peak_of *of, uint64_t bytes, int64_t n)
{
    int64_t held = 0;
    for (int64_t too_many = n + 1; too_many - held > 1;) {
        const int64_t middle = held + (too_many - held) / 2;
        if (bytes_of(of, room_of(of, middle)) <= bytes)
            held = middle;
        else
            too_many = middle;
    }
    return held;
}

/* Refuses chunks where none fits in addition to what stays. */
static int check_least(const struct app_peak_of *of, int64_t kept, int64_t room)
{
    if (room >= LEAST)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "--kv-peak %lld is too small: %lld entries per head stay between chunks, and a chunk "
                    "takes %d; allow at least %llu, or keep less",
                    (long long)of->args->kv_peak, (long long)kept, LEAST,
                    (unsigned long long)bytes_of(of, room_of(of, kept + LEAST)));
}

/* Refuses ways of reading that the peak does not allow. */
static int check_way(const struct app_peak *peak, const wnw_run *run, const struct app_peak_of *of)
{
    const char *reason;
    if (of->policy && !wnw_policy_allows(of->policy, WNW_PHASE_CHUNK, &reason))
        return app_fail(
            APP_BAD_INPUT,
            "the prompt's cache takes %llu bytes, above --kv-peak, and this policy cannot read in "
            "chunks: %s; use keydiff, or allow that much",
            (unsigned long long)peak->whole, reason);
    if (of->args->evict && run->phase == WNW_PHASE_END)
        return app_fail(
            APP_BAD_INPUT,
            "the prompt's cache takes %llu bytes, above --kv-peak; leave out --evict end, or allow "
            "that much",
            (unsigned long long)peak->whole);
    return APP_OK;
}

int app_peak_choose(struct app_peak *peak, wnw_run *run, const struct app_peak_of *of)
{
    const int64_t n = of->n;
    *peak = (struct app_peak){0};
    if (!(of->args->kv_peak > 0))
        return APP_OK;
    peak->whole = bytes_of(of, of->on_devices ? wnw__room_in_steps(n, WNW_DEVICE_STEP) : n);
    if (peak->whole <= (uint64_t)of->args->kv_peak)
        return APP_OK;
    WNW_TRY(check_way(peak, run, of));
    const double between = ceil(of->n_kept * slack_of(of->args));
    const int64_t kept = between < (double)n ? (int64_t)between : n,
                  room = held_in(of, (uint64_t)of->args->kv_peak, n + LEAST) - kept;
    WNW_TRY(check_least(of, kept, room));
    if (run->chunk > room)
        return app_fail(
            APP_BAD_INPUT, "--evict chunk:%d does not fit --kv-peak; use chunk:%lld, or allow %llu bytes",
            run->chunk, (long long)room, (unsigned long long)bytes_of(of, room_of(of, kept + run->chunk)));
    run->phase = WNW_PHASE_CHUNK;
    if (run->chunk == 0)
        run->chunk = (int32_t)(room < MOST ? room : MOST);
    peak->chunk = run->chunk;
    return APP_OK;
}

int app_peak_verify(const struct app_peak *peak, const struct app_peak_of *of, uint64_t used)
{
    const uint64_t most = (uint64_t)of->args->kv_peak, blocks = bytes_of(of, WNW_CACHE_GROWTH);
    if (peak->chunk == 0 || used <= most || used - most <= blocks)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "--kv-peak %llu is too small: in chunks of %d tokens this policy had %llu bytes, because "
                    "it keeps more "
                    "than the size says; use keydiff, or allow that much",
                    (unsigned long long)most, (int)peak->chunk, (unsigned long long)used);
}

void app_peak_tell(const struct app_peak *peak, const struct app_args *args, uint64_t bytes)
{
    const double mib = 1048576.0;
    if (peak->chunk == 0)
        return;
    app_note(
        "read in chunks of %d tokens: the whole cache takes %.2f MiB, --kv-peak allows %.2f, and %.2f were "
        "used",
        peak->chunk, (double)peak->whole / mib, (double)args->kv_peak / mib, (double)bytes / mib);
}
