/* SPDX-License-Identifier: MIT */
/* What a job reads: texts, tokens, and what they may be. */
#ifndef WNW_APP_JOB_INPUT_H
#define WNW_APP_JOB_INPUT_H

#include "app/job.h"

/* Refuses options on the layout of texts that exclude each other. Returns an exit code, like all functions here. */
int app_job_check_layout(const struct app_args *args);
/* Reads documents, question and system message. */
int app_job_read_texts(struct app_job *job);
/* Checks the options of a prompt, and reads its texts or its tokens. */
int app_job_check_prompt(struct app_job *job);
/* Finds the model, and notes which files are inputs. */
int app_job_find_inputs(struct app_job *job);

#endif
