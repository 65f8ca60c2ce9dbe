/* SPDX-License-Identifier: MIT */
/* Tasks whose samples are lines of the user's JSONL: LongBench, SCBench and questions of the user's own. */
#ifndef WNW_EVAL_SET_H
#define WNW_EVAL_SET_H

#include "eval/tasks/task.h"

/* Samples of a set in the file's order. */
struct eval_set_reader {
    const struct eval_task *set;
    struct eval_jsonl file;
    char *path; /* owned */
    const struct eval_tokenizer *tokenizer;
    const struct eval_chat *chat;
    int32_t max_prompt; /* tokens; contexts of longer prompts lose their middle; 0 = no limit */
    int32_t n_ctx;      /* tokens of context, all questions and answers; 0 = no limit */
    int32_t overhead;   /* of them, for the chat around each question */
    int32_t extra_new;  /* tokens that answers may have beyond the set's number */
    int32_t least_new;  /* tokens that answers have at least, for which the cut leaves room */
    bool chat_always;   /* even where the benchmark has no chat template */
    int32_t index;      /* of the next sample */
};
/* Opens FOLDER/FILE.jsonl, or FILE_e.jsonl for LongBench if that alone exists; for EVAL_OWN_FILE the file that
 * `folder` names. Returns an exit code, like the next function. */
int eval_set_open(struct eval_set_reader *r, const struct eval_task *set, const char *folder);
/* The next sample; *more false at the end. The caller clears the sample in any case. */
int eval_set_next(struct eval_set_reader *r, struct eval_sample *s, bool *more);
void eval_set_close(struct eval_set_reader *r);
/* Reads the whole file to check it; *n becomes its number of samples and *hash the hash of its lines, blank ones
 * left out. Returns an exit code. */
int eval_set_check(int32_t *n, uint64_t *hash, const struct eval_task *set, const char *folder);
/* Whether the set's file exists. */
bool eval_set_exists(const struct eval_task *set, const char *folder);
/* The most tokens of an answer, where a line has no number of its own. */
int32_t eval_set_max_new(const struct eval_set_reader *r);
/* The longest prompt in tokens for a model, without the chat template: the context minus answers, template and a reserve, and no
 * more than the papers' values for 32K and 128K models. */
int32_t eval_set_max_prompt(int32_t n_ctx, int32_t max_new, int32_t overhead);

#endif
