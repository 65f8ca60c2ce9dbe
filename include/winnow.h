/* SPDX-License-Identifier: MIT */
/*
 * winnow: language models with a compressed key-value cache.
 *
 * Three nouns. A *model* is a GGUF file, opened read-only and shareable. A *session* is one timeline of
 * tokens and owns the cache. A *policy* is an immutable recipe that says which cache entries to keep.
 *
 *     wnw_model_open -> wnw_session_new -> wnw_session_observe(policy) -> wnw_session_prefill
 *                    -> wnw_session_compress(policy, size) -> wnw_session_decode ...
 *
 * Conventions
 *   - Fallible functions return WNW_OK (0) or a negative wnw_status. wnw_last_error() has the sentence for a
 * person.
 *   - Out-parameters come first and are NULL (or zero) after a failure.
 *   - Counts are n_*, il = layer, ih = KV head, shapes are written outermost first: [n_head_kv][n_tokens].
 *   - Threads: models and policies are read-only after creation and may be shared. A session, sampler, plan
 * or registry belongs to one thread at a time. The library has no other state than the log sink and a
 *     per-thread error text. It never prints and never exits.
 *   - Before 1.0 there is no ABI promise.
 */
#ifndef WINNOW_H
#define WINNOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WNW_VERSION_MAJOR  0
#define WNW_VERSION_MINOR  1
#define WNW_VERSION_PATCH  0
#define WNW_VERSION_STRING "0.1.0"

/* ---- Errors and log
 * ------------------------------------------------------------------------------------------ */

/* Status codes and their short names; X(name, value, sentence). */
#define WNW_STATUS_MAP(X)                                                           \
    X(OK, 0, "success")                                                             \
    X(E_NOMEM, -1, "out of memory")                                                 \
    X(E_IO, -2, "reading or writing failed")                                        \
    X(E_FORMAT, -3, "not a valid file of its format")                               \
    X(E_UNSUPPORTED, -4, "not supported")                                           \
    X(E_MISMATCH, -5, "made for another model")                                     \
    X(E_ARG, -6, "bad argument")                                                    \
    X(E_RANGE, -7, "value out of range")                                            \
    X(E_NOT_OBSERVED, -8, "the policy needs an observation that was not collected") \
    X(E_FULL, -9, "longer than the context")                                        \
    X(E_CANCELLED, -10, "cancelled")                                                \
    X(E_BACKEND, -11, "the compute backend failed")

typedef enum wnw_status {
#define WNW_X(name, value, text) WNW_##name = (value),
    WNW_STATUS_MAP(WNW_X)
#undef WNW_X
} wnw_status;

/* Version of the library that is linked, "major.minor.patch". Static. */
const char *wnw_version(void);

/* Sentence for a status code. Static. */
const char *wnw_strerror(int status);

/* What went wrong in the last failing call of this thread: one sentence, no newline, "" if none. Borrowed
 * until the next failing call of this thread. */
const char *wnw_last_error(void);

typedef enum wnw_log_level { WNW_LOG_DEBUG, WNW_LOG_INFO, WNW_LOG_WARN } wnw_log_level;

/* Log sink for the whole process; text has no trailing newline. NULL (the default) drops everything, messages
 * of ggml and libllama included. Call before other threads use the library. */
typedef void (*wnw_log_fn)(wnw_log_level level, const char *text, void *user);
void wnw_set_log(wnw_log_fn fn, void *user);

/* ---- Model
 * ---------------------------------------------------------------------------------------------------- */

typedef struct wnw_model wnw_model;

typedef struct wnw_model_params {
    bool repack; /* copy weights into CPU-friendly layouts where ggml has them: faster prefill, more memory.
                    Default on */
} wnw_model_params;

wnw_model_params wnw_model_default_params(void);

/* Opens the GGUF file at `path`: hyper-parameters, tokenizer and memory-mapped weights. params NULL =
 * defaults. Errors: E_IO (cannot open), E_FORMAT (not a GGUF, truncated, contradictory), E_UNSUPPORTED
 * (architecture; the message lists the supported ones). Release with wnw_model_free after every session on
 * it. */
int wnw_model_open(wnw_model **out, const char *path, const wnw_model_params *params);
void wnw_model_free(wnw_model *m);

typedef struct wnw_model_info {
    const char *arch;        /* "llama", "qwen2", ...; borrowed from the model */
    const char *name;        /* general.name, or the file's base name; borrowed from the model */
    int32_t n_layer;         /* transformer layers */
    int32_t n_layer_swa;     /* of which use a sliding window; policies leave those alone */
    int32_t n_head;          /* query heads */
    int32_t n_head_kv;       /* KV heads */
    int32_t n_embd;          /* hidden size */
    int32_t n_embd_head;     /* size of one head, d */
    int32_t n_ctx_train;     /* longest context the model was trained for, tokens */
    int32_t n_vocab;         /* size of the vocabulary */
    int32_t n_swa;           /* sliding window in tokens, 0 = none */
    uint64_t weight_bytes;   /* bytes of weights in the file */
    uint64_t repacked_bytes; /* bytes of weights held a second time in a repacked layout */
} wnw_model_info;

void wnw_model_get_info(const wnw_model *m, wnw_model_info *out);

/* Whether layer il uses a sliding window. */
bool wnw_model_layer_is_swa(const wnw_model *m, int32_t il);

/* Names of the supported architectures; NULL past the end. Static. */
const char *wnw_arch_name(int32_t i);

/* ---- Text
 * ----------------------------------------------------------------------------------------------------- */

/* Token ids of `text` (len bytes). add_special: add BOS/EOS as the vocabulary asks. parse_special: text such
 * as
 * "<|im_start|>" becomes the control token. *tokens is owned by the caller, release with wnw_free. */
int wnw_tokenize(const wnw_model *m, const char *text, size_t len, bool add_special, bool parse_special,
                 int32_t **tokens, int32_t *n_tokens);

/* Text of n tokens, NUL-terminated, control tokens left out. *text is owned by the caller, release with
 * wnw_free. */
int wnw_detokenize(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text);

/* Whether the token ends generation. */
bool wnw_token_is_eog(const wnw_model *m, int32_t token);

/* How a prompt is laid out. */
typedef struct wnw_prompt_params {
    const char *document; /* NULL = none */
    const char *question; /* NULL = none */
    const char *chat;     /* name of one of libllama's chat templates; NULL = the model's own */
    bool raw;             /* no template: BOS where the vocabulary adds one, then the text */
} wnw_prompt_params;

/* A prompt in two pieces, so that every mode sees the same tokens: [template head + document] and
 * [blank line (if there is a document) + question + template tail]. */
typedef struct wnw_prompt {
    int32_t *tokens;   /* [n_tokens], owned; release with wnw_prompt_clear */
    int32_t n_tokens;  /* both pieces */
    int32_t n_context; /* length of the first piece */
} wnw_prompt;

int wnw_prompt_build(wnw_prompt *out, const wnw_model *m, const wnw_prompt_params *params);
void wnw_prompt_clear(wnw_prompt *p);

/* Releases what the library says is released with it. NULL is fine. */
void wnw_free(void *p);

/* ---- Methods: what a policy is made of
 * -------------------------------------------------------------------------- */

typedef struct wnw_policy wnw_policy;
typedef struct wnw_registry wnw_registry;

typedef enum wnw_part_kind {
    WNW_PART_SCORER,
    WNW_PART_LAYER_BUDGET,
    WNW_PART_HEAD_BUDGET,
    WNW_PART_SELECTOR
} wnw_part_kind;

typedef enum wnw_option_type { WNW_OPT_INT, WNW_OPT_REAL, WNW_OPT_BOOL, WNW_OPT_ENUM } wnw_option_type;

/* One typed option of a part. The framework parses it, checks the range and stores it at `offset` of the
 * options struct: int32_t for INT, BOOL and ENUM (index into choices), double for REAL. */
typedef struct wnw_option {
    const char *name; /* NULL ends a table */
    const char *help;
    wnw_option_type type;
    size_t offset;
    double def, min, max;
    const char *const *choices; /* ENUM: NULL-terminated */
} wnw_option;

/* Observations a scorer may ask for. */
enum {
    WNW_NEED_WINDOW_ATTN = 1u << 0, /* attention of the last `window` prompt queries */
    WNW_NEED_KEYS = 1u << 1,        /* cached keys, after RoPE */
    WNW_NEED_VALUES = 1u << 2,      /* cached values */
};

typedef struct wnw_needs {
    uint32_t flags;
    int32_t window; /* queries observed at the end of the prompt; the largest asked for wins */
} wnw_needs;

/* What the forward pass saw of one layer. Everything is float32 and borrowed until the score function
 * returns. Entries are cache entries in ascending position; with a cache that was never compressed entry i is
 * position i. Rows are rectangular: head ih has n_entry[ih] <= n entries, the rest is padding whose score is
 * ignored. */
typedef struct wnw_observation wnw_observation;
struct wnw_observation {
    int32_t il, n_layer; /* layer, and how many the model has */
    int32_t n_head,
        n_head_kv;          /* query heads; KV heads. Query head h reads KV head h / (n_head / n_head_kv) */
    int32_t n_embd_head;    /* d */
    int32_t n;              /* entries per head */
    int32_t n_past;         /* tokens read so far (the next token's position) */
    const int32_t *n_entry; /* [n_head_kv] */
    const int32_t *pos;     /* [n_head_kv][n], original positions; -1 in padding */
    int32_t n_window; /* queries in window_attn: the asked window, or fewer when the prompt is shorter */
    /* [n_head][n_window][n]: softmax over all visible entries, 0 where causality forbids. Query row w belongs
     * to position n_past - n_window + w. NULL unless WINDOW_ATTN was asked for. */
    const float *window_attn;
    /* Keys / values of KV head ih, [n][d]. Borrowed until the same function is called for another head. NULL
     * unless asked for. */
    const float *(*keys)(const wnw_observation *obs, int32_t ih);
    const float *(*values)(const wnw_observation *obs, int32_t ih);
    void *source; /* private to whoever filled the struct */
};

/* Entries that are kept whatever their score. */
typedef struct wnw_protected {
    int32_t n_first; /* sinks */
    int32_t n_last;  /* most recent */
} wnw_protected;

/* A scorer: observations of one layer -> score[n_head_kv][n], higher = keep. Pure: same input, same output;
 * no allocation (scratch is given); thread-safe. */
typedef struct wnw_scorer {
    const char *name;  /* [a-z0-9_-]+ */
    const char *about; /* one sentence */
    const char *paper; /* title or arXiv id, "" if none */
    const wnw_option *options;
    size_t options_size;
    /* What it wants to see. NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Entries kept whatever their score, for n entries. NULL = none. */
    void (*protect)(const void *opts, int32_t n, wnw_protected *out);
    /* float scratch elements wanted for this observation. NULL = 0. */
    size_t (*scratch)(const void *opts, const wnw_observation *obs);
    /* Fills score[n_head_kv][n]. Returns WNW_OK or an error status. */
    int (*score)(const void *opts, const wnw_observation *obs, float *score, float *scratch);
} wnw_scorer;

/* Parts from outside the library. A policy keeps pointers to the descriptors, which must outlive it; the
 * registry itself may be freed after parsing. */
int wnw_registry_new(wnw_registry **out);
void wnw_registry_free(wnw_registry *r);
/* E_ARG for a bad or taken name, or a descriptor without a score function. */
int wnw_registry_add_scorer(wnw_registry *r, const wnw_scorer *scorer);

/* Parses a recipe, `name[:key=value,...][+name[:...]]...`. registry may be NULL. E_ARG: the message names
 * what is unknown, out of range or cannot be combined, and suggests. */
int wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry);
void wnw_policy_free(wnw_policy *p);

/* Canonical form with every default written out; parses to an equal policy. Borrowed from the policy. */
const char *wnw_policy_string(const wnw_policy *p);

/* What sessions must observe for this policy. */
wnw_needs wnw_policy_needs(const wnw_policy *p);

/* Whether the policy keeps everything ("full"). */
bool wnw_policy_is_full(const wnw_policy *p);

/* Whether the policy knows its own size when none is given (LagKV's retention). */
bool wnw_policy_has_own_size(const wnw_policy *p);

/* One entry of the method list, for help and documentation. */
typedef struct wnw_method_info {
    const char *name;
    const char *kind;   /* "preset", "parity preset", "scorer", "layer budget", "head budget", "selector" */
    const char *about;  /* one sentence */
    const char *paper;  /* "" if none */
    const char *recipe; /* presets: the canonical form of their parts; else "" */
    const char *layout; /* "uniform", "layer", "composite" or "ragged": shape of the plans; "" for parts */
    const char *needs;  /* what it observes: "nothing", "window attention", "keys, values", ... */
    const char *phases; /* "end" and so on */
    const wnw_option *options; /* NULL or a table that ends with name == NULL; presets: of their scorer */
} wnw_method_info;

/* Entry i of all presets and parts, in a fixed order. false past the end. Static. */
bool wnw_method_get(int32_t i, wnw_method_info *out);

/* ---- Size: how much to keep
 * ------------------------------------------------------------------------------------- */

typedef enum wnw_size_kind {
    WNW_SIZE_NONE,   /* the policy's own rule, else ratio 0.5 */
    WNW_SIZE_BUDGET, /* average entries kept per layer and KV head, >= 1 */
    WNW_SIZE_RATIO,  /* fraction removed, 0 <= r < 1 */
    WNW_SIZE_BYTES,  /* bytes of kept keys and values */
} wnw_size_kind;

/* Counted over the compressed part of the prompt, protected entries included, sliding-window layers left out.
 */
typedef struct wnw_size {
    wnw_size_kind kind;
    int64_t budget;
    double ratio;
    uint64_t bytes;
} wnw_size;

/* ---- Keep-plan
 * ---------------------------------------------------------------------------------------------------- */

typedef struct wnw_plan wnw_plan;

void wnw_plan_free(wnw_plan *p);
int32_t wnw_plan_n_layer(const wnw_plan *p);
int32_t wnw_plan_n_head_kv(const wnw_plan *p);
int32_t wnw_plan_n_tokens(const wnw_plan *p); /* tokens read when the plan was made */
/* Kept positions of layer il, KV head ih, ascending: [returned count]. Borrowed from the plan. */
int32_t wnw_plan_head(const wnw_plan *p, int32_t il, int32_t ih, const int32_t **positions);
/* A plan from data, e.g. read from a file. positions[il * n_head_kv + ih] points to n[il * n_head_kv + ih]
 * ascending positions; copied. E_ARG if they are not ascending or not in 0..n_tokens-1. */
int wnw_plan_new(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens, const int32_t *n,
                 const int32_t *const *positions);

/* ---- Session
 * -------------------------------------------------------------------------------------------------------- */

typedef struct wnw_session wnw_session;

typedef enum wnw_kv_type { WNW_KV_F16, WNW_KV_F32, WNW_KV_Q8_0, WNW_KV_Q4_0 } wnw_kv_type;
typedef enum wnw_attn { WNW_ATTN_OWN, WNW_ATTN_GGML } wnw_attn;

/* "f16" -> WNW_KV_F16 ...; E_ARG lists the names. */
int wnw_kv_type_parse(wnw_kv_type *out, const char *name);
const char *wnw_kv_type_name(wnw_kv_type t);
/* Bytes of one key plus one value of n_embd_head elements. */
size_t wnw_kv_entry_bytes(wnw_kv_type t, int32_t n_embd_head);

typedef struct wnw_session_params {
    int32_t n_ctx;     /* longest timeline in tokens, 0 = what the model was trained for */
    int32_t n_ubatch;  /* prompt tokens per graph, 0 = 512 */
    int32_t n_threads; /* 0 = usable cores */
    wnw_kv_type kv_type;
    wnw_attn attn; /* OWN: our kernels over ragged heads; GGML: standard ggml operations, the oracle */
    /* Called during prefill after each ubatch with tokens done and to do; return false to cancel
     * (E_CANCELLED). */
    bool (*progress)(int32_t done, int32_t total, void *user);
    void *progress_user;
} wnw_session_params;

wnw_session_params wnw_session_default_params(void);

/* A new timeline. The model must outlive it. E_UNSUPPORTED: head size and kv_type do not fit. E_RANGE: n_ctx
 * or others. */
int wnw_session_new(wnw_session **out, const wnw_model *m, const wnw_session_params *params);
void wnw_session_free(wnw_session *s);

/* Forgets all tokens and frees the cache. */
int wnw_session_reset(wnw_session *s);

/* Declares before prefill what policies will be asked for; replaces earlier declarations. n = 0: observe
 * nothing. */
int wnw_session_observe(wnw_session *s, const wnw_policy *const *policies, int32_t n);

/* Receives the logits [n_vocab] of the i-th token of the call; return false to cancel. */
typedef bool (*wnw_logits_fn)(int32_t i, const float *logits, void *user);

/* Appends n prompt tokens. on_logits NULL: only the last token's logits are computed (wnw_session_logits).
 * E_FULL: more tokens than n_ctx; nothing is changed then. After E_BACKEND or E_CANCELLED the session holds
 * the tokens of the ubatches that were finished. */
int wnw_session_prefill(wnw_session *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits,
                        void *user);

/* Appends one token at the next position and computes its logits. */
int wnw_session_decode(wnw_session *s, int32_t token);

/* Logits [n_vocab] of the last token read. Borrowed until the next call on the session; NULL before any. */
const float *wnw_session_logits(const wnw_session *s);

/* Tokens read so far = position of the next token. Not the number of cached entries. */
int32_t wnw_session_n_past(const wnw_session *s);

typedef struct wnw_report {
    double kept_mean; /* entries per KV head, over the layers that have no sliding window */
    int64_t entries_before, entries_after; /* over all layers and KV heads, sliding-window layers included */
    uint64_t kv_bytes_before, kv_bytes_after; /* allocated for K and V */
    double observe_ms, select_ms, compact_ms;
    char warning[256]; /* "" or one sentence, e.g. that a window was shrunk */
} wnw_report;

/* Works out what to keep; the cache is untouched. Errors: E_NOT_OBSERVED, E_RANGE (the size cannot hold the
 * protected entries). report may be NULL. *plan is owned by the caller. */
int wnw_session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_plan **plan,
                     wnw_report *report);

/* Keeps what the plan says and returns the rest to the system; sliding-window layers are left as they are.
 * E_MISMATCH: the plan does not fit this cache, which is then untouched. */
int wnw_session_apply(wnw_session *s, const wnw_plan *plan, wnw_report *report);

/* plan + apply. */
int wnw_session_compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_report *report);

typedef struct wnw_cache_stats {
    int64_t n_entries;      /* over all layers and KV heads */
    uint64_t bytes;         /* allocated for keys and values now */
    uint64_t bytes_entries; /* n_entries x bytes per entry */
    uint64_t bytes_full;    /* what an uncompressed cache of n_past tokens would allocate */
    int32_t growth;         /* entries per growth block of one head */
} wnw_cache_stats;

void wnw_cache_get_stats(const wnw_session *s, wnw_cache_stats *out);
/* Entries of layer il, KV head ih. */
int32_t wnw_cache_n(const wnw_session *s, int32_t il, int32_t ih);
/* Their original positions, ascending. Borrowed until the next call on the session. */
const int32_t *wnw_cache_positions(const wnw_session *s, int32_t il, int32_t ih);

/* ---- Sampling
 * ---------------------------------------------------------------------------------------------------------
 */

typedef struct wnw_sampler wnw_sampler;

typedef struct wnw_sampler_params {
    float temp;    /* 0 = greedy */
    int32_t top_k; /* 0 = off; default 40 */
    float top_p;   /* 1 = off; default 0.95 */
    uint32_t seed; /* default 42 */
} wnw_sampler_params;

wnw_sampler_params wnw_sampler_default_params(void);
int wnw_sampler_new(wnw_sampler **out, const wnw_sampler_params *params);
void wnw_sampler_free(wnw_sampler *sp);
/* Picks a token from logits[n_vocab]. */
int32_t wnw_sampler_pick(wnw_sampler *sp, const float *logits, int32_t n_vocab);

/* ---- Machine
 * -----------------------------------------------------------------------------------------------------------
 */

/* Cores this process may use. */
int32_t wnw_usable_cores(void);
/* Name of the attention kernels in use: "avx512", "avx2", "scalar". Static. */
const char *wnw_kernel_name(void);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_H */
