/* SPDX-License-Identifier: MIT */
/*
 * What is parked in the folder of `winnow serve --state`, for the terminal: conversations and the tokens that a prompt begins with. A session
 * is made of a parked prompt by way of a stored session (*.wkv), which is written to the folder and removed. parked.c has the folder,
 * parked_session.c the session, and parked_turns.c the turns of its text.
 */
#ifndef WNW_CLI_PARKED_H
#define WNW_CLI_PARKED_H

#include "cli/conversation.h"
#include "cli/slot_of.h"

struct cli_parked_entry {
    uint64_t id;
    int64_t used; /* seconds since 1970 */
    struct serve_park_about about;
};

/* Starts as {0}. */
struct cli_parked {
    struct serve_park_folder folder;
    const wnw_model *model;
    const char *model_path,
        *profile; /* where profiles are looked for, as --profile has it; borrowed, may be NULL */
    struct serve_owner owner;
    struct cli_parked_entry *of; /* [n] those of the owner, the one used least recently first; owned */
    int32_t n, cap;
    uint64_t most; /* the largest number of the folder */
};

/* Functions return exit codes and print their messages. */

/* Whether a folder is that of a server, and not one of documents. */
bool cli_parked_is(const char *folder);
/* Opens the folder, which no server may have open, for prompts of the model. api_key_file: has the API key whose prompts are meant; NULL:
 * those without a key. */
int cli_parked_open(struct cli_parked *p, const char *folder, const wnw_model *model,
                    const char *api_key_file);
void cli_parked_close(struct cli_parked *p);
/* Prints a line for each, the one used last first. */
int cli_parked_list(const struct cli_parked *p);
/* The one of this number, or the last one where name is "last". */
int cli_parked_find(const struct cli_parked_entry **e, const struct cli_parked *p, const char *name);

/* ---- Sessions (parked_session.c) ---- */

/* Makes a stored session of a conversation with its turns, as /save does; *st is released with wnw_stored_free. */
int cli_parked_conversation(wnw_stored **st, const struct cli_parked *p, const struct cli_parked_entry *e);
/* Makes a stored session, for a session with these parameters and rules, of the parked prompt that has the most of the first tokens[n]:
 * of one that was kept whole the common beginning, of another one only where it has all tokens and the same rules. *st = NULL: there is none. */
int cli_parked_beginning(wnw_stored **st, const struct cli_parked *p, const wnw_session_params *how,
                         const wnw_run *run, const int32_t *tokens, int32_t n);
/* Makes a stored session of a session, by way of the folder. */
int cli_parked_store(wnw_stored **st, const struct cli_parked *p, const wnw_session *s,
                     const wnw_store_params *params);
/* Parks a session that a function writes to a file. from: the parked prompt that it was made of, which it replaces where it goes on from it; NULL =
 * none. same_rules: it has followed its rules. */
typedef int cli_parked_write(const char *path, void *user);
int cli_parked_add(struct cli_parked *p, cli_parked_write *write, void *user,
                   const struct cli_parked_entry *from, bool same_rules);

/* ---- Turns (parked_turns.c) ---- */

/* Finds the turns of a chat in tokens[n] by the model's template. The first n_read were read. Bad input where they are no plain
 * chat of it. *system is owned by the caller, and borrowed by the layout. */
int cli_parked_turns(struct cli_conversation *t, char **system, const int32_t *tokens, int32_t n,
                     int32_t n_read);

#endif
