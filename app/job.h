/* SPDX-License-Identifier: MIT */
/* What run, plan and ppl have in common: from checked arguments to a compressed session. */
#ifndef WNW_APP_JOB_H
#define WNW_APP_JOB_H

#include "app/args.h"
#include "app/console.h"
#include "app/keep.h"
#include "app/kv.h"
#include "app/output.h"
#include "app/text.h"
#include "winnow_method.h"
#include "winnow_study.h"

/* Questions that are expected of the document: tokens that would be read after it. */
struct app_expected {
    wnw_prompt **prompt;    /* [n] owned */
    const int32_t **tokens; /* [n], point into them */
    int32_t *n_tokens;
    int32_t n;
};

struct app_job {
    const struct app_args *args;
    char *model_path;
    struct app_inputs inputs; /* document, model, profile, ... */
    char *document;           /* the documents joined; NULL = none */
    size_t n_document;        /* bytes */
    char *question, *system;  /* NULL = none */
    bool stores;              /* the session will be stored and may be continued later */
    bool no_profiles;         /* auto chooses among policies that read no calibration results */
    struct app_keep keep;     /* what is kept, and when the rest is removed */
    struct app_kv kv;
    bool
        reads_once; /* one prompt is read and answered, and nothing is stored: `auto` may read it in chunks */
    bool on_devices; /* --devices: a sequence of libllama in place of a session reads the prompt once */
    wnw_attn attn;
    wnw_mask_phase mask_phase;
    wnw_mask_form mask_form;
    int64_t now;      /* the date for templates that write it, as in wnw_prompt_params; 0 = the present */
    bool talks;       /* a conversation: what follows the document is compressed too, turn after turn */
    bool any_length;  /* the prompt is only tokenized: it may be longer than the context */
    bool is_prepared; /* profile and policy are loaded, and job->keep.run is complete */

    wnw_model *model;
    wnw_model_info info;
    int32_t *file_tokens; /* from --tokens, owned */
    int32_t n_file_tokens;
    wnw_prompt *prompt;    /* from text, owned; NULL = none */
    const int32_t *tokens; /* [n_tokens], points into file_tokens or prompt */
    int32_t n_tokens;
    int32_t n_context; /* tokens of the first piece */
    int32_t n_first;   /* tokens that are compressed where a text is scored after them; 0: none is */
    struct app_expected expected;
    struct app_text remarks; /* on texts, and of the library on profile and prompt, one per line */
    wnw_engine *engine;      /* that runs sessions of a stored document; NULL = a session has its own */
    wnw_session *session;
    struct app_progress progress;

    double load_ms, prefill_ms, compress_ms;
    double start_ms; /* when prefill began */
    /* The cache right after compression: */
    double kept_mean; /* entries per layer and KV head, sliding-window layers left out */
    uint64_t kv_bytes, kv_bytes_full;
    uint64_t kv_bytes_peak; /* the most while the prompt was read and compressed */
    uint64_t kv_bytes_swa;  /* of kv_bytes, those of layers with a sliding window */
    struct {
        bool used;        /* a folder of documents was named */
        bool exact;       /* only a document with all tokens was looked for */
        int32_t n_tokens; /* that came from there; 0 = none was found */
    } store;
};

/* Reads the argument of --mask-form (NULL = not given). Returns an exit code. */
int app_job_mask_form(wnw_mask_form *form, const char *word);
/* Checks everything that can be refused without the model. Returns an exit code, like all functions here. */
int app_job_check(struct app_job *job, const struct app_args *args);
/* The same for commands that only take a model and a prompt. */
int app_job_check_input(struct app_job *job, const struct app_args *args);
/* The same for conversations, whose prompts come later: with documents or without. */
int app_job_check_conversation(struct app_job *job, const struct app_args *args);
/* Sets the date of prompts to the present, so that it can be stored: the clock of this place, as templates read it. */
void app_job_date(struct app_job *job);
/* Reads --attn. */
int app_job_attention(struct app_job *job);
/* Opens the model. */
int app_job_open(struct app_job *job);
/* Turns the prompt into tokens and checks them against the vocabulary. */
int app_job_prompt(struct app_job *job);
/* Reads the profile that the policy needs and completes job->keep.run, the session's rules. A second call does nothing. */
int app_job_prepare(struct app_job *job);
/* Makes a session that observes for the policy. */
int app_job_session(struct app_job *job);
/* Check, open, prompt and session in this order: from options to a session that is ready to read the
 * prompt. */
int app_job_start(struct app_job *job, const struct app_args *args);
/* Reads tokens [from, to), with a progress line. */
int app_job_read(struct app_job *job, int32_t from, int32_t to, wnw_logits_fn on_logits, void *user);
/* Reads the first n tokens, compresses them as the rules say and stores the cache's size in the job. */
int app_job_read_first(struct app_job *job, int32_t n);
/* The same for a job whose session has read other tokens before: tokens [from, to) of the prompt. */
int app_job_read_on(struct app_job *job, int32_t from, int32_t to);
/* Fails if the cache had more bytes than --kv-peak allows, with a policy that leaves more than its size. */
int app_job_check_peak(const struct app_job *job);
/* Stores the cache's present size in the job. */
void app_job_measure(struct app_job *job);
/* Number of tokens that are compressed: those of the document with --context-only, else all. */
int32_t app_job_n_compressed(const struct app_job *job);
/* Prints remarks on what was assumed. The caller first checks all input, so that an error is one line. */
void app_job_notes(const struct app_job *job);
/* Frees the session and then its engine, which need the model. */
void app_job_end_session(struct app_job *job);
/* How the prompt was read in chunks by --kv-peak or --chunk-slack, as JSON: {"chunk", "slack", "kv_peak_bytes"}; NULL where it was not, or without memory. */
json_t *app_job_chunks(const struct app_job *job);
/* What was chosen and why, as JSON; NULL where the policy was named, or without memory. */
json_t *app_job_choice(const struct app_job *job);
void app_job_close(struct app_job *job);

#endif
