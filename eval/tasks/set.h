/* SPDX-License-Identifier: MIT */
/* Data sets that the user brings as JSONL: LongBench, SCBench and questions of the user's own. */
#ifndef WNW_EVAL_SET_H
#define WNW_EVAL_SET_H

#include "eval/base/jsonl.h"
#include "eval/tasks/sample.h"
#include "eval/tasks/tokens.h"

enum eval_set_flags {
    EVAL_NO_CHAT = 1,      /* the prompt is plain text for every model */
    EVAL_FIRST_LINE = 2,   /* the answer is the first line of what is generated */
    EVAL_STOP_AT_LINE = 4, /* generation stops at the first line break after the first token */
    EVAL_ENDS_WITH_PREFIX =
        16,           /* a question may end with the beginning of the answer, which is removed there */
    EVAL_OWN_FILE = 8 /* the user names the file and not its folder, and means all of it: contexts stay whole,
                       * samples longer than the model's context are left out */
};

/* How a prompt is worded (eval/data/sets.txt). */
enum eval_form {
    EVAL_FORM_NARRATIVEQA,
    EVAL_FORM_QASPER,
    EVAL_FORM_MULTIFIELDQA,
    EVAL_FORM_MULTI_DOC,
    EVAL_FORM_GOV_REPORT,
    EVAL_FORM_QMSUM,
    EVAL_FORM_MULTI_NEWS,
    EVAL_FORM_TREC,
    EVAL_FORM_TRIVIAQA,
    EVAL_FORM_SAMSUM,
    EVAL_FORM_PASSAGE_COUNT,
    EVAL_FORM_PASSAGE_RETRIEVAL,
    EVAL_FORM_LCC,
    EVAL_FORM_REPOBENCH,
    EVAL_FORM_SCB_KV,
    EVAL_FORM_SCB_MF,
    EVAL_FORM_SCB_QA
};

struct eval_set {
    const char *name;  /* of the task */
    const char *group; /* "longbench", "scbench" or "user" */
    const char *about;
    const char *file; /* without .jsonl; NULL for EVAL_OWN_FILE */
    const char *metric;
    int32_t max_new;
    uint32_t flags; /* eval_set_flags */
    /* Fills in context, turns and meta from a line. Returns an exit code; a message on a bad line names
     * it. */
    int (*make)(struct eval_sample *s, const struct eval_set *set, const struct eval_jsonl *j,
                const json_t *o);
    enum eval_form form; /* for `make` of LongBench and SCBench */
};
/* The form's text around the context, around the question, and the beginning of the answer. */
const char *const *eval_set_texts(const struct eval_set *set);

/* Set number i of all families, NULL after the last. */
const struct eval_set *eval_set_get(int32_t i);

/* Samples of a set in the file's order. */
struct eval_set_reader {
    const struct eval_set *set;
    struct eval_jsonl file;
    char *path; /* owned */
    const struct eval_tokenizer *tokenizer;
    const struct eval_chat *chat;
    int32_t max_prompt; /* tokens; contexts of longer prompts lose their middle; 0 = no limit */
    int32_t
        n_ctx; /* tokens of context, all questions and answers, with `overhead` for the chat around each; 0 = no limit */
    int32_t overhead;
    int32_t extra_new; /* tokens that answers may have beyond the set's number */
    int32_t least_new; /* tokens that answers have at least, for which the cut leaves room */
    bool chat_always;  /* even where the benchmark has no chat template */
    int32_t index;     /* of the next sample */
};
/* Opens FOLDER/FILE.jsonl, or FILE_e.jsonl for LongBench if that alone exists; for EVAL_OWN_FILE the file that
 * `folder` names. Returns an exit code, like the next function. */
int eval_set_open(struct eval_set_reader *r, const struct eval_set *set, const char *folder);
/* The next sample; *more false at the end. The caller clears the sample in any case. */
int eval_set_next(struct eval_set_reader *r, struct eval_sample *s, bool *more);
void eval_set_close(struct eval_set_reader *r);
/* Reads the whole file to check it; *n becomes its number of samples and *hash the hash of its lines, blank ones
 * left out. Returns an exit code. */
int eval_set_check(int32_t *n, uint64_t *hash, const struct eval_set *set, const char *folder);
/* Whether the set's file exists. */
bool eval_set_exists(const struct eval_set *set, const char *folder);
/* The most tokens of an answer, where a line has no number of its own. */
int32_t eval_set_max_new(const struct eval_set_reader *r);
/* The longest prompt in tokens for a model, without the chat around it: what the context leaves besides answers, chat and a
 * reserve, and no more than the papers' values for 32K and 128K models. */
int32_t eval_set_max_prompt(int32_t n_ctx, int32_t max_new, int32_t overhead);

/* set_longbench.c, set_scbench.c, set_user.c; ended by a name of NULL. */
extern const struct eval_set eval_sets_longbench[], eval_sets_scbench[], eval_sets_user[];

#endif
