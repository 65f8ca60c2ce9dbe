/* SPDX-License-Identifier: MIT */
/* A job whose prompt is read on other devices of ggml (--devices): a sequence of libllama takes the place of the session. */
#ifndef WNW_CLI_ON_DEVICES_H
#define WNW_CLI_ON_DEVICES_H

#include "app/devices.h"
#include "app/job.h"
#include "app/sequence.h"
#include "cli/args.h"

struct cli_on_devices {
    struct app_devices devices;
    struct app_text profiles;
    struct app_sequence *sequence; /* NULL: the command computes with sessions */
};

/* Refuses --layers without --devices, and options that sessions alone have. Returns an exit code, as the functions below do. */
int cli_on_devices_check(const struct cli_args *args);
/* Chooses the job's policy, makes the devices and opens the model on them, with room for n_more tokens after the prompt. */
int cli_on_devices_begin(struct cli_on_devices *d, struct app_job *job, const struct cli_args *args,
                         int64_t n_more);
/* Makes the devices and opens the model on them with a context of n_ctx tokens. policy: by which it will be compressed; NULL: it will not be. */
int cli_on_devices_open(struct cli_on_devices *d, struct app_job *job, const struct cli_args *args,
                        int64_t n_ctx, const wnw_policy *policy);
/* Reads tokens [from, to) of the prompt, with a progress line. */
int cli_on_devices_read(struct cli_on_devices *d, struct app_job *job, int32_t from, int32_t to,
                        wnw_logits_fn on_logits, void *user);
/* Reads the first n tokens, compresses them, and stores the cache's size in the job. */
int cli_on_devices_read_first(struct cli_on_devices *d, struct app_job *job, int32_t n);
/* Makes a plan of what the cache holds after the first n tokens were read and compressed: the keep-set. */
int cli_on_devices_plan(const struct cli_on_devices *d, const struct app_job *job, wnw_plan **plan);
/* Stores the cache's present size in the job. */
void cli_on_devices_measure(const struct cli_on_devices *d, struct app_job *job);
/* Stores the bytes alone: devices give memory back when the next token is computed. */
void cli_on_devices_measure_bytes(const struct cli_on_devices *d, struct app_job *job);
void cli_on_devices_end(struct cli_on_devices *d);

#endif
