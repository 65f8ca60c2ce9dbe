/* SPDX-License-Identifier: MIT */
/* How far a run is and how long it will take, on stderr. */
#ifndef WNW_EVAL_PROGRESS_H
#define WNW_EVAL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct eval_progress {
    bool quiet, terminal, shown;
    int32_t n_all, n_done;     /* samples of this process */
    int32_t n_configs, config; /* of the current sample: to be answered, and answered; 0 = not known */
    int64_t n_tokens;          /* read and generated so far */
    double start_ms, last_ms;
    double work_all, work_done, work_ran; /* the same in the cost that samples were given */
    int64_t n_full, n_comp;               /* scores of the full cache and of the rest, so far */
    double sum_full, sum_comp;
};

void eval_progress_start(struct eval_progress *p, bool quiet);
/* Counts an answer's score. */
void eval_progress_score(struct eval_progress *p, bool full, double score);
/* Shows where the run is: on a terminal at most ten times a second, elsewhere every ten seconds. */
void eval_progress_show(struct eval_progress *p, const char *task, int32_t n_target);
/* Ends the line. */
void eval_progress_end(struct eval_progress *p);

#endif
