/* SPDX-License-Identifier: MIT */
/* What run, plan and ppl have in common: from checked arguments to a compressed session. */
#ifndef WNW_APP_JOB_H
#define WNW_APP_JOB_H

#include "app/args.h"
#include "app/automatic.h"
#include "app/console.h"
#include "app/kv.h"
#include "app/output.h"
#include "app/peak.h"
#include "app/text.h"
#include "winnow_method.h"
#include "winnow_study.h"

struct app_job {
    const struct app_args *args;
    char *model_path;
    struct app_inputs inputs; /* document, model, profile, ... */
    char *document;           /* the documents joined; NULL = none */
    size_t n_document;        /* bytes */
    char *question, *system;  /* NULL = none */
    wnw_policy *policy;       /* NULL until app_job_session where it is chosen */
    bool automatic;           /* no policy was named, or auto: it is chosen once the prompt is known */
    bool stores;              /* the session will be stored and may be continued later */
    bool no_profiles;         /* auto chooses among policies that read no calibration results */
    bool was_read;            /* the session has entries that were read for another policy or none */
    wnw_policy_choice choice;
    char *keep_recipe; /* owned: for --keep-quality; NULL = none is asked for, or not chosen yet */
    wnw_size size;
    wnw_run run;       /* the session's rules: policy, size, when to compress, prompt */
    wnw_run_more more; /* of `run` */
    struct app_kv kv;
    struct app_peak peak; /* what --kv-peak led to */
    bool
        reads_once; /* one prompt is read and answered, and nothing is stored: `auto` may read it in chunks */
    bool on_devices;   /* --devices: a sequence of libllama in place of a session reads the prompt once */
    int32_t own_chunk; /* tokens of a chunk if `auto` has decided so, else 0 */
    wnw_attn attn;
    wnw_mask_phase mask_phase;
    wnw_mask_form mask_form;
    bool size_assumed; /* no size was given and the policy has no rule of its own: ratio 0.5 */
    int64_t now;       /* the date for templates that write it, as in wnw_prompt_params; 0 = the present */
    bool talks;        /* a conversation: what follows the document is compressed too, turn after turn */
    bool any_length;   /* the prompt is only tokenized: it may be longer than the context */
    bool is_prepared;  /* profile and policy are loaded, and job->run is complete */
    bool size_ignored; /* a size was given for the policy that keeps everything */

    wnw_model *model;
    wnw_model_info info;
    int32_t *file_tokens; /* from --tokens, owned */
    int32_t n_file_tokens;
    wnw_prompt *prompt;    /* from text, owned; NULL = none */
    const int32_t *tokens; /* [n_tokens], points into file_tokens or prompt */
    int32_t n_tokens;
    int32_t n_context;       /* tokens of the first piece */
    wnw_profile *profile;    /* NULL = none */
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

/* The argument of --evict, or its default. */
const char *app_job_when(const struct app_args *args);
/* Reads the arguments of --evict and --evict-every (NULL = not given) into the rules. Returns an exit code. */
int app_job_rules(wnw_run *rules, const char *when, const char *every);
/* Reads the argument of --mask-form (NULL = not given). Returns an exit code. */
int app_job_mask_form(wnw_mask_form *form, const char *word);
/* Fails if the policy cannot compress in a phase that the rules ask for. `when` is the text that the rules were parsed from. */
int app_job_allowed(const wnw_policy *policy, const wnw_run *rules, const char *when);
/* Checks everything that can be refused without the model. Returns an exit code, like all functions here. */
int app_job_check(struct app_job *job, const struct app_args *args);
/* The same for commands that only take a model and a prompt. */
int app_job_check_input(struct app_job *job, const struct app_args *args);
/* The same for conversations, whose prompts come later: with documents or without. */
int app_job_check_conversation(struct app_job *job, const struct app_args *args);
/* The part of it that says what is to be kept and when, of job->args: rules, size and policy. */
int app_job_check_keeping(struct app_job *job);
/* Refuses a policy that judges what it keeps of a document by the question, where that is not known. NULL = one that is
 * chosen later, and does not. */
int app_job_check_blind(const wnw_policy *policy);
/* Sets the date of prompts to the present, so that it can be stored: the clock of this place, as templates read it. */
void app_job_date(struct app_job *job);
/* The option that gives a size; NULL = none does. */
const char *app_job_size_option(const struct app_args *args);
/* Reads --attn. */
int app_job_attention(struct app_job *job);
/* Opens the model. */
int app_job_open(struct app_job *job);
/* Whether the prompt may be longer than the context: read by chunks, and kept tokens get new positions. */
bool app_job_is_endless(const struct app_job *job);
/* Turns the prompt into tokens and checks them against the vocabulary. */
int app_job_prompt(struct app_job *job);
/* Reads the profile that the policy needs and completes job->run, the session's rules. A second call does nothing. */
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
