/* SPDX-License-Identifier: MIT */
/* What all kinds of `winnow calibrate` have in common: from arguments to files that are written. */
#ifndef WNW_CALIBRATION_JOB_H
#define WNW_CALIBRATION_JOB_H

#include "app/output.h"
#include "base/err.h"
#include "calibration/args.h"
#include "winnow_calibrate.h"

enum { CALIBRATE_MAX_OUTPUTS = 8 };

/* A further output of the library and the file that it goes to. */
struct calibrate_output {
    const char *name; /* "dump" */
    const char *path; /* NULL = not wanted */
};

struct calibrate_job {
    const struct calibrate_args *args;
    const char *kind;
    struct calibrate_output outputs[CALIBRATE_MAX_OUTPUTS]; /* ended by a name of NULL */
    bool all_kinds; /* without -f it reads the shipped texts of all kinds, not only prose */

    /* Set by calibrate_job_open. A kind may change params before calibrate_job_run. */
    wnw_calibrate_params params;
    struct app_inputs inputs;
    char *model_path;
    wnw_model *model;

    /* Set by calibrate_job_run. */
    wnw_calibration *result;

    /* Private. */
    wnw_calibration_text *texts; /* [n_texts], owned with their strings */
    int32_t n_texts;
    char *folder, *file; /* where profiles go: file, or files of their usual names in folder; owned */
    char *journal;       /* owned */
};

/* All three return exit codes. Checks arguments, reads the texts and opens the model. The job starts as {args,
 * kind, outputs}; the caller closes it in any case. */
int calibrate_job_open(struct calibrate_job *job);
/* Runs the calibration, with progress; Ctrl-C gives 130. */
int calibrate_job_run(struct calibrate_job *job);
/* Writes outputs and profiles, removes the journal, and prints the report. */
int calibrate_job_write(struct calibrate_job *job);
void calibrate_job_close(struct calibrate_job *job);
/* Writes a whole text, which appears under its name when it is complete. Returns an exit code. */
int calibrate_write(const char *path, const char *text, const struct app_inputs *inputs);

/* The four in this order, for kinds that need nothing in between. */
int calibrate_job(struct calibrate_job *job);

#endif
