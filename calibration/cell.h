/* SPDX-License-Identifier: MIT */
/* winnow calibrate compiler --cell: what CompilerKV's tables make of prompts. */
#ifndef WNW_CALIBRATION_CELL_H
#define WNW_CALIBRATION_CELL_H

#include "calibration/job.h"

struct calibrate_cells {
    const char *path;       /* of the profile */
    const int32_t *budgets; /* [n_budgets]; none: the table's own */
    int32_t n_budgets;
    const int32_t *lengths; /* [n_lengths] tokens of a prompt; none: the whole text */
    int32_t n_lengths;
    int32_t n_pieces; /* prompts of each length and text */
};

/* Prints the cell of every prompt, and by length and budget how often the thresholds bind. Returns an exit code. */
int calibrate_cell(const struct calibrate_job *job, const struct calibrate_cells *what);

#endif
