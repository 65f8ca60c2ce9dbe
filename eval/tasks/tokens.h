/* SPDX-License-Identifier: MIT */
/* Tokens of a sample: the model's tokenizer as an interface, the chat around the user's text, lengths. */
#ifndef WNW_EVAL_TOKENS_H
#define WNW_EVAL_TOKENS_H

#include "eval/tasks/sample.h"
#include "winnow.h"

/* What a chat puts around the user's text, as the library writes it, so that run reads the same tokens. */
struct eval_chat {
    const char *name;  /* "auto": the model's own template; "none"; or one of libllama's; borrowed */
    char *head, *tail; /* before and after the text, owned; empty for plain text */
    bool raw;          /* plain text, which begins with a BOS if the vocabulary asks for one */
    bool takes_turns;  /* the template takes earlier turns */
    bool prefix_first; /* the beginning of the answer is put before the tail, into the user's turn */
    int32_t n_prefix;  /* tokens that the template writes before the user's text */
    int32_t *suffix;   /* [n_suffix] the tail's tokens, owned; 0 for plain text */
    int32_t n_suffix;
    bool blank; /* a text that goes on after the tail lacks the blank that one by itself begins with */
};
/* Returns an exit code. */
int eval_chat_open(struct eval_chat *c, const wnw_model *m, const char *name);
void eval_chat_close(struct eval_chat *c);

/* Token ids of a sample's prompt in its two pieces, which are never merged: [head + context] and
 * [question + tail + prefix] of a turn. */
struct eval_prompt {
    int32_t *ids; /* [n], owned */
    int32_t n, n_context;
    int32_t n_question; /* tokens up to the question's end, which is not where the tail begins if one token
                           belongs to both */
};

/* A question, as the library's chat takes it. */
struct eval_asked {
    const char *question, *begin;
};
/* The text before it. */
struct eval_before {
    const char *context;
    const char *answer; /* to an earlier question, which is read too; NULL = the context is read first */
    bool apart;         /* after an answer: the question is tokenised by itself */
};

/* A tokenizer. Its functions return exit codes and print their own messages. */
struct eval_tokenizer {
    /* Ids of text[len], plain text that begins a sequence. The caller releases them with wnw_free. */
    int (*encode)(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n);
    /* Fills in ids, n and n_context of n prompts, which differ in the question. */
    int (*ask)(const struct eval_tokenizer *t, const struct eval_chat *c, const struct eval_before *b,
               const struct eval_asked *a, struct eval_prompt *p, int32_t n);
    /* Text of ids[n], which the caller releases with wnw_free. */
    int (*decode)(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text);
    const wnw_model *model; /* NULL for tokenizers of tests */
    int32_t bos;            /* what plain texts begin with; -1 = nothing */
};
struct eval_tokenizer eval_tokenizer_of(const wnw_model *m);

/* The context and the question of each turn, as if that was the first: p[s->n_turns]. Returns an exit code, like the next
 * function; the caller clears the prompts in any case. */
int eval_prompts_first(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s);
/* What follows the beginning of an answer when another turn comes: the rest of the answer, the template's words between
 * turns, and the question of `turn` with what follows it. `apart`: there are n_context tokens before the question; otherwise
 * n_context is 0. n_question is 0. */
int eval_prompt_next(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn, const char *answer, bool apart);
void eval_prompt_clear(struct eval_prompt *p);
/* Counts the tokens of text[len] alone. */
int eval_count_tokens(int32_t *n, const struct eval_tokenizer *t, const char *text, size_t len);

/* ---- How many tokens a conversation about one context takes, where every question stays in the cache ---- */

/* Which answers to earlier questions stay in the cache; both: the longer one of the two. */
enum eval_history {
    EVAL_HISTORY_REFERENCES = 1,
    EVAL_HISTORY_ANSWERS = 2 /* the model's own, each of as many tokens as it may have */
};

/* Adds a turn's references as one text, with what the beginning of the answer leaves to be put in front. Returns an exit
 * code. */
int eval_history_refs(struct app_text *out, const struct eval_chat *c, const struct eval_turn *turn);

/* Sets end[t] to the number of tokens before the answer to turn t; end[0] is known. history: a sum of eval_history. `apart`: questions
 * are tokenised by themselves, as when the cache is compressed before each of them. Returns an exit code: bad input if the chat
 * template takes no earlier turns. */
int eval_timeline_ends(int32_t *end, const struct eval_tokenizer *t, const struct eval_chat *c,
                       const struct eval_sample *s, uint32_t history, bool apart);

#endif
