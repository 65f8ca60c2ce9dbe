/* SPDX-License-Identifier: MIT */
/* A conversation as the command keeps it: what was asked and answered, from which its tokens are made, also of one that a
 * file has stored. */
#ifndef WNW_CLI_CONVERSATION_H
#define WNW_CLI_CONVERSATION_H
#include "winnow_chat.h"
#include "winnow_store.h"

#include <jansson.h>

struct cli_turn {
    char *document;  /* a text that came with the question, owned; NULL = none */
    char *question;  /* owned */
    char *said;      /* the answer, owned; NULL = it is missing */
    int32_t *answer; /* [n_answer] its tokens, owned */
    int32_t n_answer;
    int32_t n_read;            /* first tokens of the answer that the session has read */
    int32_t n_past, n_context; /* as in the prompt when it was laid out last */
    /* Of the session before it read the turn: tokens read, and those of them that came after the last compression. */
    int32_t n_before, n_since;
};

/* Starts as {0} with `model` and `layout`, whose strings are borrowed. */
struct cli_conversation {
    const wnw_model *model;
    wnw_prompt_params layout; /* system message and template; its document and question are not used */
    struct cli_turn *turns;   /* [n] owned; the answer of the last one may be missing */
    int32_t n, cap;
    wnw_chat *chat; /* NULL = to be laid out again */
    /* what is known of the template since the first turn was laid out: n_prefix and the suffix */
    wnw_prompt *header;
    int32_t n_laid; /* turns that are laid out in it with their answers */
};

/* All functions return exit codes and print their messages. */

/* Adds a turn, whose texts are copied, and makes *out, which is released with wnw_prompt_free, also after errors. Nothing changes on failure. */
int cli_conversation_ask(wnw_prompt **out, struct cli_conversation *t, const char *document,
                         const char *question);
/* Adds the answer to it. */
int cli_conversation_answer(struct cli_conversation *t, const wnw_generated *said);
/* Takes the last turn back. */
void cli_conversation_drop(struct cli_conversation *t);
/* Lays out all turns, where that is to be done. */
int cli_conversation_lay_out(struct cli_conversation *t);

/* Going through the turns once more: _restart, and for each turn _next, which fills *out, and _close, which adds its answer. */
int cli_conversation_restart(struct cli_conversation *t);
int cli_conversation_next(wnw_prompt **out, struct cli_conversation *t);
int cli_conversation_close(struct cli_conversation *t);

/* The turns as text for a file, with how many of their tokens the session has read; *text is released with free. */
int cli_conversation_note(char **text, const struct cli_conversation *t, int32_t n_read);
/* Reads the turns of a stored session's note into a conversation that has none, and lays them out; the session has read the first
 * *n_read of their tokens. Strings of the layout are borrowed from *note, which is released with json_decref in any case. path:
 * of the file, for messages. */
int cli_conversation_open(struct cli_conversation *t, json_t **note, int32_t *n_read, const wnw_stored *st,
                          const char *path);

/* Forgets all turns. */
void cli_conversation_clear(struct cli_conversation *t);

#endif
