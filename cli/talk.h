/* SPDX-License-Identifier: MIT */
/* A conversation as the command keeps it: what was asked and answered, from which its tokens are made, also of one that a
 * file has stored. */
#ifndef WNW_CLI_TALK_H
#define WNW_CLI_TALK_H
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
struct cli_talk {
    const wnw_model *model;
    wnw_prompt_params layout; /* system message and template; its document and question are not used */
    struct cli_turn *turns;   /* [n] owned; the answer of the last one may be missing */
    int32_t n, cap;
    wnw_chat *chat; /* NULL = to be laid out again */
    /* what is known of the template since the first turn was laid out: n_prefix and the suffix */
    wnw_prompt header;
    int32_t n_laid; /* turns that are laid out in it with their answers */
};

/* All functions return exit codes and print their messages. */

/* Adds a turn, whose texts are copied, and fills *out, which is released with wnw_prompt_clear. Nothing changes on failure. */
int cli_talk_ask(wnw_prompt *out, struct cli_talk *t, const char *document, const char *question);
/* Adds the answer to it. */
int cli_talk_answer(struct cli_talk *t, const wnw_generated *said);
/* Takes the last turn back. */
void cli_talk_drop(struct cli_talk *t);
/* Lays out all turns, where that is to be done. */
int cli_talk_lay_out(struct cli_talk *t);

/* Going through the turns once more: _restart, and for each turn _next, which fills *out, and _close, which adds its answer. */
int cli_talk_restart(struct cli_talk *t);
int cli_talk_next(wnw_prompt *out, struct cli_talk *t);
int cli_talk_close(struct cli_talk *t);

/* The turns as text for a file, with how many of their tokens the session has read; *text is released with free. */
int cli_talk_note(char **text, const struct cli_talk *t, int32_t n_read);
/* Reads the turns of a stored session's note into a talk that has none, and lays them out; the session has read the first
 * *n_read of their tokens. Strings of the layout are borrowed from *note, which is released with json_decref in any case. path:
 * of the file, for messages. */
int cli_talk_open(struct cli_talk *t, json_t **note, int32_t *n_read, const wnw_stored *st, const char *path);

/* Forgets all turns. */
void cli_talk_clear(struct cli_talk *t);

#endif
