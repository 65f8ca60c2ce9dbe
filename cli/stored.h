/* SPDX-License-Identifier: MIT */
/* Stored documents (*.wkv) as sub-commands take them. */
#ifndef WNW_CLI_STORED_H
#define WNW_CLI_STORED_H

#include "app/job.h"
#include "winnow_store.h"

/* Whether a file begins as a stored document does. Returns an exit code. */
int cli_stored_is(bool *yes, const char *path);
/* Opens a file that an argument names. Returns an exit code; *st is released with wnw_stored_free. */
int cli_stored_open(wnw_stored **st, const char *path);
/* The option that was given of those which say how a cache is stored and when it is compressed: a stored document has its own. NULL =
 * none was. */
const char *cli_stored_option(const struct app_args *args);
/* Its text; refuses a file without a document. */
int cli_stored_text(wnw_prompt_params *text, const wnw_stored *st, const char *path);
/* Refuses a prompt whose first piece is not what the file has read: the model's template is another one now. */
int cli_stored_check_prompt(const wnw_stored *st, const wnw_prompt *prompt, const char *path);
/* Makes a session of the file with room for `room` more tokens. The engine must outlive the session. */
int cli_stored_session(wnw_session **s, const wnw_stored *st, wnw_engine *e, int64_t room);
/* Makes the job's engine, with its threads and attention. */
int cli_stored_engine(struct app_job *job);
/* Sets how the cache is stored and which tokens were read in a job about the file. */
int cli_stored_describe(struct app_job *job, const wnw_stored *st);

#endif
