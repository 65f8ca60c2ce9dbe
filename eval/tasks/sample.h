/* SPDX-License-Identifier: MIT */
/* One sample of a task: what the model reads, what it is asked and what counts as an answer. */
#ifndef WNW_EVAL_SAMPLE_H
#define WNW_EVAL_SAMPLE_H

#include "app/text.h"
#include "eval/tasks/lists.h"

#include <jansson.h>
#include <stdint.h>

/* A question about the context. Tasks of one question have one turn. */
struct eval_turn {
    struct app_text question;
    /* Beginning of the answer, and before it the blank that a plain text needs there; in a chat, where the answer opens a turn, that
     * blank is left out. */
    struct app_text prefix;
    char **refs; /* [n_refs], owned */
    int32_t n_refs;
};

struct eval_span {
    size_t from, to; /* bytes of the context */
};

/* The longest key of a sample with its NUL. */
enum { EVAL_MAX_SAMPLE_KEY = 128 };

struct eval_sample {
    const char *task, *metric;
    int32_t n_target, index, max_new;
    uint64_t seed;
    struct app_text context; /* all that is read before the question */
    struct eval_turn *turns; /* [n_turns], owned */
    int32_t n_turns;
    struct eval_span *spans; /* [n_spans] places of the evidence, owned */
    int32_t n_spans;
    uint64_t text; /* that contains the evidence; samples with the same number share it; 0 = none, noise */
    json_t *meta;
    bool no_memory;        /* memory ran out: the sample is incomplete and must not be used */
    bool unmade;           /* it cannot be made as it should be: it is left out and counted */
    bool too_few;          /* its units are too few to make one of them */
    struct eval_turn lost; /* what a turn is where there is no memory for it */
};

/* All functions below set no_memory if memory runs out, so that a task checks only once, at its end. */

void eval_sample_clear(struct eval_sample *s);
/* Writes "TASK|N|INDEX|SEED", from which all random numbers of a sample follow. */
void eval_sample_key(char out[EVAL_MAX_SAMPLE_KEY], const struct eval_sample *s);
/* Add formatted text, and text[len]. */
void eval_put(struct eval_sample *s, struct app_text *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void eval_put_n(struct eval_sample *s, struct app_text *to, const char *text, size_t len);
/* Adds text[len] to the context, where it may be evidence. */
void eval_put_piece(struct eval_sample *s, const char *text, size_t len, bool evidence);
/* Adds a template with each {name} replaced by its value. The list has names and values in turn and ends with
 * NULL. Names within values are not replaced, and braces around other words stay. */
void eval_put_template(struct eval_sample *s, struct app_text *to, const char *text,
                       const char *const *values);
/* Adds a turn whose question and beginning of the answer are worded as in a form, with values (NULL = none). It is valid until the
 * next turn. */
struct eval_turn *eval_ask(struct eval_sample *s, const struct eval_list *form, const char *const *values);
/* Adds a turn, which is valid until the next one. */
struct eval_turn *eval_add_turn(struct eval_sample *s);
void eval_add_ref(struct eval_sample *s, struct eval_turn *turn, const char *ref);
/* Sets a value of meta and takes it over. */
void eval_set_meta(struct eval_sample *s, const char *key, json_t *value);

/* The references of a turn as a list; NULL if memory runs out. */
json_t *eval_refs_json(const struct eval_turn *turn);
/* The record that --dump-samples prints; NULL if memory runs out. */
json_t *eval_sample_json(const struct eval_sample *s);

#endif
