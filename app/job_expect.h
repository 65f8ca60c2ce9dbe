/* SPDX-License-Identifier: MIT */
/* Questions that are expected of a document, for policies that judge it by them (--expect). */
#ifndef WNW_APP_JOB_EXPECT_H
#define WNW_APP_JOB_EXPECT_H

#include "app/job.h"

/* Refuses them without a document, and with policies that look at no question. Returns an exit code. */
int app_job_expect_check(const struct app_job *job);
/* Turns them into tokens, once the model is open. Returns an exit code. */
int app_job_expect(struct app_job *job);
void app_job_expect_clear(struct app_job *job);

#endif
