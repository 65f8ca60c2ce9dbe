/* SPDX-License-Identifier: MIT */
/* Answering: what `run` and `ask` have in common, from a session that has read the question to what is printed. */
#ifndef WNW_CLI_ANSWER_H
#define WNW_CLI_ANSWER_H

#include "app/job.h"
#include "app/sequence.h"
#include "cli/args.h"

#include <jansson.h>

struct cli_answer {
    wnw_sampler *sampler;
    struct app_sequence *sequence; /* that answers in place of the job's session; NULL: none does */
    wnw_generated said;
    int32_t most;    /* tokens to generate */
    bool ends_loops; /* an answer that repeats itself ends */
    bool looped;     /* it did */
    bool stoppable;  /* a signal that app_stop_* watches ends the answer */
    double ttft_ms, decode_ms;
    int32_t n_prefill; /* tokens that were read in the job's prefill_ms */
};

/* Makes the sampler that the arguments ask for; they can be refused before a model is opened. Returns an exit code, like
 * the functions below. To be cleared in any case. */
int cli_answer_begin(struct cli_answer *a, const struct cli_args *args);
void cli_answer_clear(struct cli_answer *a);

/* Generates with the job's session, which has read the question, and prints the text on the way, unless JSON is wanted. */
int cli_answer_generate(struct cli_answer *a, struct app_job *job);
/* The fields of `run --json`; NULL without memory. */
json_t *cli_answer_json(const struct cli_answer *a, const struct app_job *job);
/* Ends what is printed: the JSON object, or the answer's last line and a summary on stderr. */
int cli_answer_print(const struct cli_answer *a, const struct app_job *job);

#endif
