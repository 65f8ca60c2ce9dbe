/* SPDX-License-Identifier: MIT */
/* Documents that a folder keeps (--store): found before they are read, added once they were. */
#ifndef WNW_CLI_STORE_USE_H
#define WNW_CLI_STORE_USE_H

#include "app/job.h"
#include "cli/args.h"
#include "cli/parked.h"
#include "winnow_store.h"

/* Starts as {0}. */
struct cli_store_use {
    const char *folder; /* borrowed */
    wnw_store *store;
    struct cli_parked parked; /* in place of the store, where the folder is a server's */
    bool parks;
    wnw_stored *st; /* the file that was found; NULL = none */
    int32_t n_have; /* tokens of the document that it has read */
    bool exact;     /* only a file with all tokens of the document was looked for */
    bool required;  /* without the document in the folder there is nothing to do */
};

/* Whether an option of a store was given. */
bool cli_store_use_given(const struct cli_args *args);
/* Refuses options that do not go together with a store. Returns an exit code, like the others. */
int cli_store_use_check(const struct cli_args *args);
/* Opens the folder, and makes the job's session: of the document that was found, or a new one. */
int cli_store_use_begin(struct cli_store_use *use, struct app_job *job, const struct cli_args *args);
/* Reads what is missing of the document, and adds it; where that fails, the answer still comes, unless the document is required. */
int cli_store_use_read(struct cli_store_use *use, struct app_job *job);
/* Opens the document as the folder keeps it, after it was read; released with wnw_stored_free. */
int cli_store_use_find(wnw_stored **st, struct cli_store_use *use, const struct app_job *job);
/* To be called after the job was closed, or its session freed. */
void cli_store_use_end(struct cli_store_use *use);

#endif
