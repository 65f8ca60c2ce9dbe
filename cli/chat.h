/* SPDX-License-Identifier: MIT */
/*
 * winnow chat. chat.c reads lines from chat_line.c (chat_line.h). chat_commands.c parses those that begin with '/', and
 * chat_do.c executes them. chat_session.c brings the session up to the last turn. chat_keep.c sets what is kept and when.
 * chat_save.c writes and reads files, chat_parked.c parked conversations. chat_print.c prints.
 */
#ifndef WNW_CLI_CHAT_H
#define WNW_CLI_CHAT_H

#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/on_devices.h"
#include "cli/parked.h"
#include "cli/store_use.h"
#include "winnow_store.h"

struct cli_chat {
    struct cli_args args; /* a copy; what the conversation has changed of it is owned by the fields below */
    char *policy, *evict, *evict_every;
    struct cli_on_devices devices; /* --devices; its sequence takes the place of the job's session */
    struct app_job job;            /* its prompt is the document, if there is one */
    struct cli_conversation conversation;
    struct cli_store_use use;
    struct cli_parked parked;               /* of --state */
    const struct cli_parked_entry *resumed; /* the one of it that --resume names; NULL = none */
    bool own_rules; /* policy or size were given here, and are not those that it was asked for */
    wnw_stored *st; /* of -c; NULL = none */
    bool of_file;   /* the document is in it, as it was read and compressed */
    json_t *note;   /* the conversation in it, whose strings `conversation` borrows; NULL = none */
    /* what the template wrote in a first turn without a document: n_prefix and the suffix */
    wnw_prompt *header;
    char *file;    /* text for the next turn (/file), owned; NULL = none */
    bool terminal; /* somebody types: signals end answers, not the program */
    bool endless;  /* kept tokens get new positions, so that the context never ends */
    int32_t n_ctx; /* most positions */
    int32_t step;  /* new tokens after which the cache is compressed again */

    int32_t *seen; /* [n_read] tokens of the conversation that the session has read, owned */
    int32_t n_read, cap;
    /* how many of them, from the first, a stored session has read in another form: documents were added to it */
    int32_t n_odd;
    int32_t n_since;   /* of these, tokens that came after the last compression */
    bool stale;        /* the session is not where the turns are: they are read again before it is used */
    char warning[260]; /* the last one that was told */
    int32_t tries;     /* answers to the last question that were taken back by /retry */

    int32_t n_turn_read, n_answered; /* tokens of the last turn, */
    int32_t n_answer_read;           /* those of its answer that were read for the next one, and its times */
    double read_ms, answer_ms;
};

/* ---- What is kept and when (chat_keep.c) ---- */

/* Tokens that a turn brings before the cache is compressed again; the server's rule. */
enum { CHAT_STEP = 128 };
/* The context of a conversation on --devices where none is given: libllama takes memory for all of it at once. */
enum { CHAT_ON_DEVICES = 8192 };

/* Reads "0.5" (a ratio), "512" (a budget) or "64M" (bytes), as the options --ratio, --budget and --kv-bytes take them. */
bool cli_chat_size(wnw_size *size, const char *text);
bool cli_chat_wants_endless(const struct cli_chat *c);
/* The recipe for a context without an end: that of the arguments, with kept tokens renumbered. *recipe is released
 * with free. Returns an exit code, as all functions here that return int. */
int cli_chat_endless_policy(char **recipe, const struct app_args *a);
/* Sets the arguments to policy, size and phase of the file of -c where they name none. */
int cli_chat_take_rules(struct cli_chat *c);
/* Reads --context once the model is known, and sets what goes with it. */
int cli_chat_context(struct cli_chat *c);
/* Changes the policy (NULL = as it is) or the size (NULL = as it is) from now on. Nothing changes on failure. */
int cli_chat_change(struct cli_chat *c, const char *recipe, const wnw_size *size);

/* ---- The session (chat_session.c) ---- */

/* The prompt's layout by the template, for the session's rules; NULL once kept tokens were renumbered. */
const wnw_prompt *cli_chat_prompt(const struct cli_chat *c);
/* Makes the session, which then has read the document. */
int cli_chat_open(struct cli_chat *c);
/* Takes the session of the file of -c, which has read the first n tokens of the turns that are laid out. */
int cli_chat_take_stored(struct cli_chat *c, int32_t n);
void cli_chat_close_session(struct cli_chat *c);
/* Answers a question: prints the answer, and adds both to the conversation. A turn that could not be read is none. */
int cli_chat_answer(struct cli_chat *c, const char *document, const char *question);
/* Takes the last turn back; false where there is none. */
bool cli_chat_undo(struct cli_chat *c);
/* Forgets all turns. */
void cli_chat_restart(struct cli_chat *c);
/* Brings the session to where the turns are, where it is not. */
int cli_chat_catch_up(struct cli_chat *c);
/* Has it read the end of the last answer, too, where that was generated and not read: what is read is all that is parked of an answer. */
int cli_chat_read_answer(struct cli_chat *c);

/* ---- Files (chat_save.c) ---- */

/* A .wkv file gets the session, another one the text of the conversation. */
int cli_chat_save(struct cli_chat *c, const char *path);
/* Parks the conversation in the folder of --state. */
int cli_chat_park(struct cli_chat *c);
/* Opens the folder of --state, and the conversation that --resume names. *ends: it named "list", which was printed. */
int cli_chat_take_parked(struct cli_chat *c, bool *ends);
/* Opens the file of -c: document and template, and the turns if it has some. */
int cli_chat_load(struct cli_chat *c);

/* ---- What is printed, on stderr (chat_print.c) ---- */

/* Two lines before the first turn: model, document, what is kept; how to get help. */
void cli_chat_print_start(struct cli_chat *c);
void cli_chat_print_stats(struct cli_chat *c);
void cli_chat_print_help(void);

/* ---- Commands (chat_commands.c) ---- */

enum cli_chat_word {
    CHAT_FILE,
    CHAT_SYSTEM,
    CHAT_POLICY,
    CHAT_SIZE,
    CHAT_STATS,
    CHAT_UNDO,
    CHAT_RETRY,
    CHAT_REREAD,
    CHAT_SAVE,
    CHAT_NEW,
    CHAT_HELP,
    CHAT_QUIT,
    CHAT_N_WORDS
};

struct cli_chat_command {
    const char *name, *argument, *help; /* argument NULL = it takes none */
};
/* [CHAT_N_WORDS] */
extern const struct cli_chat_command cli_chat_commands[];

/* Reads a line that begins with '/': which command it is, and its argument ("" = none), a part of the line, which is cut off
 * after it. */
int cli_chat_parse(enum cli_chat_word *word, const char **argument, char *line);

/* Does what a command says (chat_do.c). *ends: the conversation is over. */
int cli_chat_do(struct cli_chat *c, enum cli_chat_word word, const char *argument, bool *ends);

#endif
