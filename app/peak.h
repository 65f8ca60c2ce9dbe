/* SPDX-License-Identifier: MIT */
/* --kv-peak: whether a prompt is read whole or in chunks, so that its cache never takes more than a number of bytes. */
#ifndef WNW_APP_PEAK_H
#define WNW_APP_PEAK_H

#include "app/args.h"
#include "app/kv.h"
#include "winnow.h"

struct app_peak {
    int32_t chunk;  /* tokens of a chunk; 0 = the prompt fits whole, or no peak was given */
    uint64_t whole; /* bytes of the prompt's full cache */
};

/* What a prompt of n tokens is read with. */
struct app_peak_of {
    const struct app_args *args;
    const wnw_policy *policy; /* NULL = one that is chosen later */
    const struct app_kv *kv;
    const wnw_model_info *info;
    int32_t n;
    double n_kept;   /* entries per layer and KV head that stay */
    bool on_devices; /* a sequence of libllama has the cache, whose heads get more room at a time */
};

/* Refuses options that do not go together, before a model is open. Returns an exit code. */
int app_peak_check(const struct app_args *args, const wnw_size *size, wnw_phase phase);
/* Sets *run to chunks where the prompt does not fit --kv-peak whole. Returns an exit code: a peak that no chunk fits into is
 * refused with the least that works. */
int app_peak_choose(struct app_peak *peak, wnw_run *run, const struct app_peak_of *of);
/* Refuses what was read with more bytes than the peak allows, but for a block of entries in each head. of->n is not looked at. Returns an
 * exit code. */
int app_peak_verify(const struct app_peak *peak, const struct app_peak_of *of, uint64_t used);
/* Says on one line of stderr that the prompt was read in chunks. bytes: the most that the cache has taken. */
void app_peak_tell(const struct app_peak *peak, const struct app_args *args, uint64_t bytes);

#endif
