/* SPDX-License-Identifier: MIT */
/* One sample under one config: from a compressed session to scored answers. */
#ifndef WNW_EVAL_ENTRY_H
#define WNW_EVAL_ENTRY_H

#include "eval/run/config.h"
#include "eval/run/forced.h"
#include "eval/tasks/evidence.h"
#include "eval/tasks/sample.h"
#include "eval/tasks/tokens.h"
#include "winnow_method.h"

enum { EVAL_FORCED = 32 }; /* the most tokens of an answer or a reference that are fed to compare caches */

/* What all samples of a run share when they are read and answered. */
struct eval_runtime {
    const struct eval_tokenizer *tokenizer;
    const wnw_model *model;
    wnw_model_info info;
    wnw_engine *engine;    /* owned, as pad and store are */
    wnw_session *pad;      /* the second row of batches that have only one */
    int32_t batch;         /* the most entries that are answered together; 1 = each alone */
    int32_t answer_tokens; /* exact length of every answer, also after an end token; 0 = until it ends */
    bool early_stop;       /* an answer ends where its score cannot change any more */
    bool own_history;      /* earlier turns show the model's answers and not the references */
    bool multi_request;    /* every question is asked as if it was the first */
    bool recompress;       /* before every further question the cache is compressed again */
    struct eval_devices *devices; /* that read and answer in place of sessions, borrowed; NULL = none */
    struct wnw_store *store;      /* what was read before; NULL = none */
};
/* The options and the suite (NULL = none) say how it answers. Returns an exit code; the caller closes in any case. */
int eval_runtime_open(struct eval_runtime *m, const struct eval_tokenizer *t, const struct eval_args *args,
                      const struct eval_suite *suite);
void eval_runtime_close(struct eval_runtime *m);

/* A sample as tokens. */
struct eval_reading {
    const struct eval_sample *sample; /* borrowed, as chat is */
    const struct eval_chat *chat;
    int32_t n_turns;
    struct eval_prompt *first; /* [n_turns]: context and question, as if each was the first; owned */
    struct eval_refs {
        struct app_text text;
        int32_t *ids, n;
    } * refs;     /* [n_turns]: the references as one text, owned */
    int32_t *end; /* [n_turns]: number of tokens before the answer to each turn, owned; NULL for texts */
    struct eval_evidence evidence;
    int32_t n_need; /* the longest timeline in tokens, answers included */
    bool is_text;   /* no question: the second half of a text is compared */
};
/* What entries that answer share (entry_answer.c); these return exit codes. Takes the token that logits predict, and finds out whether the answer ends with it:
 * *open is false then. n_least: tokens that are generated even if it has ended. */
struct eval_answer;
struct eval_entry;
struct eval_expected;
int eval_take_token(struct eval_answer *a, bool *open, const struct eval_runtime *m,
                    const struct eval_sample *s, int32_t turn, int32_t n_least, const float *logits);
/* Tokens that the entry reads before it answers the turn. After the first turn they are newly made, and the
 * caller clears *own. */
int eval_turn_ids(const int32_t **ids, int32_t *n, struct eval_prompt *own, const struct eval_runtime *m,
                  const struct eval_reading *r, const struct eval_entry *e, int32_t turn);
/* Takes the first tokens of the full cache's answer, at most `most`, with room for what predicts them. */
int eval_expect(struct eval_expected *x, const struct eval_runtime *m, const struct eval_answer *a,
                int32_t most);

/* Returns an exit code; the caller closes in any case. */
int eval_reading_open(struct eval_reading *r, const struct eval_runtime *m, const struct eval_chat *chat,
                      const struct eval_sample *s);
/* The same for a piece of a text, ids[n], whose first half is compressed. The token bos precedes it; -1 = none. */
int eval_reading_text(struct eval_reading *r, const struct eval_chat *raw, const struct eval_sample *s,
                      const int32_t *ids, int32_t n, int32_t bos);
void eval_reading_close(struct eval_reading *r);
/* Tokens of the prompt that are compressed in a mode. */
int32_t eval_reading_border(const struct eval_reading *r, enum eval_mode mode);
/* The most tokens of an answer or of references that are fed after a turn's question: EVAL_FORCED, or what the model's
 * context has left there, which is enough for the answer and may not be for a comparison. */
int32_t eval_reading_forced(const struct eval_reading *r, const struct eval_runtime *m, int32_t turn);

/* What the model generates for one question. */
struct eval_answer {
    int32_t *ids; /* [n], owned; ends with the token that ends the answer, if that was generated */
    int32_t n;
    int32_t n_text;       /* of them, those of the prediction */
    const char *stop;     /* "eog", "length", "matched", "line", "text"; "bad": logits that are not numbers */
    struct app_text text; /* the prediction, valid UTF-8, owned */
    int32_t n_question;   /* tokens read after the compressed part for this question */
    double question_ms, decode_ms;
    /* Where the cache was compressed again before the question: what eval_entry has of the first time. */
    bool again;
    int32_t n_part;
    double kept_mean, again_ms;
    uint64_t kv_bytes, meta_bytes;
    /* Next to the full cache, where both have read the same tokens: */
    bool compared;
    bool same_first;            /* the first token is the same */
    struct eval_agreement same; /* over the full cache's answer */
    double dnll;                /* of the references, per token; of a text's second half */
    double nll;                 /* of a text's second half, per token */
};

/* What other entries are compared with: the full cache's answers and what predicted them. */
struct eval_reference {
    struct eval_expected {
        int32_t *ids, n; /* first tokens of the answer */
        float *logits;   /* [n][n_vocab]: what predicts each */
        double refs_nll; /* mean over the references' tokens */
    } * turn;            /* [n_turns], owned */
    int32_t n_turns;
    bool there;
    wnw_session *text_cache; /* of texts: the full cache after the first half, owned */
};
int eval_reference_open(struct eval_reference *r, int32_t n_turns);
void eval_reference_close(struct eval_reference *r);

struct eval_entry {
    const struct eval_config *config;
    bool is_reference;
    char *left_out;       /* why the sample is not answered; owned, NULL = it is */
    wnw_plan *plan;       /* owned; NULL = the session was compressed while it read, or keeps everything */
    wnw_session *session; /* after the compressed part, owned; NULL before and after its work */
    double kept_mean;     /* entries per layer and head that were kept */
    int32_t n_part;       /* tokens that were compressed */
    uint64_t kv_bytes;    /* of keys and values right after that */
    uint64_t meta_bytes;  /* then, of what the cache has next to them: positions of entries */
    uint64_t peak_bytes;  /* the most of them until then */
    bool planned;         /* protected_first and protected_last are known */
    int32_t protected_first, protected_last; /* entries of every head that stay regardless of their score */
    double prefill_ms, compress_ms;
    struct eval_answer *answer; /* [n_turns], owned */
    int32_t n_turns;
};
int eval_entry_open(struct eval_entry *e, const struct eval_config *config, int32_t n_turns);
void eval_entry_close(struct eval_entry *e);

/* Whether a status of the library says that the policy cannot have the size, which leaves the config out and not the run: the entry
 * is left out then, with the library's sentence. *rc is what remains to be done about the status, an exit code. */
bool eval_entry_leave_out(struct eval_entry *e, int status, int *rc);

/* Notes what the library reports of compressing for the entry, its time so far among it. */
void eval_entry_report(struct eval_entry *e, const wnw_report *report);

/* entry_answer.c: reads the questions after n compressed sessions and generates the answers. The entries
 * that are no reference are compared with it if it is there; one of them may be the reference itself, which
 * is filled in then. Sessions are freed. Returns an exit code. */
int eval_answer_entries(const struct eval_runtime *m, const struct eval_reading *r, struct eval_entry *e,
                        int32_t n, struct eval_reference *reference);

/* entry_text.c: the same for a text, whose second half is read and compared. */
int eval_text_entries(const struct eval_runtime *m, const struct eval_reading *r, struct eval_entry *e,
                      int32_t n, struct eval_reference *reference);

/* entry_read.c: reads the sample's first piece for the entries that are `wanted` and compresses it for each,
 * then has them answered and gives each to `done`. The entry of the full cache that is the reference comes
 * first. Returns an exit code. */
struct eval_readings {
    int64_t n;        /* readings of a sample's first piece */
    int64_t n_tokens; /* in them */
    int64_t n_kept;   /* tokens that a folder had */
    double ms;        /* that they took */
};
struct eval_wanted {
    const struct eval_configs *configs;
    const bool *config;                            /* [configs->n] */
    int (*done)(struct eval_entry *e, void *user); /* also for entries that are left out */
    void *user;
    struct eval_readings *readings; /* what was read is added to it; NULL = not counted */
};
int eval_read_entries(const struct eval_runtime *m, const struct eval_reading *r, const struct eval_wanted *w,
                      struct eval_reference *reference);

#endif
