/* SPDX-License-Identifier: MIT */
/* Tokens of a sample: the model's tokenizer behind an interface, the chat around the user's text, lengths. */
#ifndef WNW_EVAL_TOKENS_H
#define WNW_EVAL_TOKENS_H

#include "eval/tasks/sample.h"
#include "winnow.h"

/* A text of a template and of data. */
struct eval_marked {
    struct app_text text;
    wnw_bytes *plain; /* [n_plain], owned: where the data is */
    int32_t n_plain, cap;
    bool follows; /* it goes on after the token `before`; else it begins a sequence */
    int32_t before;
};

/* A tokenizer. encode and decode return exit codes and print their own messages. */
struct eval_tokenizer {
    /* Ids of text[len], plain text that begins a sequence. The caller frees them. */
    int (*encode)(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n);
    /* The same for a text in which the template's control tokens are recognised and data is plain, as in
     * wnw_tokenize_marked. NULL = there are no control tokens. */
    int (*encode_marked)(const struct eval_tokenizer *t, const struct eval_marked *text, int32_t **ids,
                         int32_t *n);
    /* Text of ids[n], which the caller frees. */
    int (*decode)(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text);
    const wnw_model *model; /* NULL for tokenizers of tests */
    bool adds_bos;          /* plain texts begin with a BOS */
};
struct eval_tokenizer eval_tokenizer_of(const wnw_model *m);

/* What a chat puts around the user's text; empty strings for plain text. It is cut out of a prompt that the library
 * built, and tokenised as the library does it, so that run reads the same tokens. */
struct eval_chat {
    char *head, *tail; /* owned */
    char *between;     /* what stands between an answer and the next question, owned; NULL = not possible */
    bool raw;          /* plain text, which begins with a BOS if the vocabulary asks for one */
    int32_t bos;       /* token that stands before the head and is not in its text; -1 = none */
    bool prefix_first; /* the beginning of the answer stands before the tail, in the user's turn */
    int32_t n_prefix;  /* tokens that the template writes before the user's text */
    int32_t *suffix;   /* [n_suffix] the tail's tokens, owned; 0 for plain text */
    int32_t n_suffix;
};
/* name is "auto" for the model's own template, "none" for plain text, or a template of libllama. Returns an
 * exit code. */
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
/* Begins a prompt with the first piece. Returns an exit code, like the next functions. */
int eval_prompt_context(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                        const struct eval_sample *s);
/* Puts the second piece behind the first; it replaces that of another turn. */
int eval_prompt_turn(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn);
/* Replaces the prompt by what follows the beginning of an answer when another turn comes: the rest of the
 * answer, the template's words between turns, and the question of `turn` with what follows it. apart: the question is
 * tokenised by itself, and n_context tokens stand before it; otherwise n_context is 0. n_question is 0. */
int eval_prompt_next(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn, const char *answer, bool apart);
void eval_prompt_clear(struct eval_prompt *p);
/* Counts the tokens of text[len] alone. */
int eval_count_tokens(int32_t *n, const struct eval_tokenizer *t, const char *text, size_t len);

#endif
