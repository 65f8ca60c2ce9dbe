/* SPDX-License-Identifier: MIT */
/*
 * winnow: language models with a compressed key-value cache.
 *
 * A *model* is a GGUF file, opened read-only and shareable. A *session* is one timeline of tokens and owns
 * the cache. A *policy* is an immutable recipe that says which cache entries stay. A program that reads a prompt under a policy
 * and answers needs only the calls of this example. It is complete, and the tests build and run it:
 *
 *     #include <stdio.h>
 *     #include <winnow.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         wnw_model *model = NULL;
 *         wnw_session *session = NULL;
 *         wnw_sampler *sampler = NULL;
 *         wnw_prompt_params text = wnw_prompt_default_params();
 *         wnw_prompt *prompt = NULL;
 *         const int32_t *tokens;
 *         int32_t n_tokens;
 *         wnw_run run = wnw_run_default();
 *         wnw_report report = wnw_report_default();
 *         wnw_generate_params how = wnw_generate_default_params();
 *         wnw_generated answer = wnw_generated_default();
 *         int rc = argc == 3 ? WNW_OK : WNW_E_ARG;
 *
 *         text.question = argv[argc - 1];
 *         if (rc == WNW_OK)
 *             rc = wnw_model_open(&model, argv[1], NULL);
 *         if (rc == WNW_OK)
 *             rc = wnw_prompt_build(&prompt, model, &text);
 *         if (rc == WNW_OK)
 *             rc = wnw_session_new(&session, model, NULL);
 *         if (rc == WNW_OK)
 *             rc = wnw_sampler_new(&sampler, NULL);
 *         run.prompt = prompt;
 *         run.recipe = "auto";
 *         run.size.kind = WNW_SIZE_RATIO;
 *         run.size.ratio = 0.5;
 *         tokens = wnw_prompt_tokens(prompt, &n_tokens);
 *         if (rc == WNW_OK)
 *             rc = wnw_session_begin(session, &run);
 *         if (rc == WNW_OK)
 *             rc = wnw_session_read(session, tokens, n_tokens, &report);
 *         if (rc == WNW_OK)
 *             fprintf(stderr, "%d tokens read, %.0f kept per head\n", (int)n_tokens, report.kept_mean);
 *         how.n_max = 64;
 *         if (rc == WNW_OK)
 *             rc = wnw_generate(&answer, session, sampler, &how);
 *         if (rc == WNW_OK)
 *             puts(answer.text);
 *         if (rc != WNW_OK)
 *             fprintf(stderr, "%s: %s\n", wnw_strerror(rc), wnw_last_error());
 *         wnw_generated_clear(&answer);
 *         wnw_sampler_free(sampler);
 *         wnw_session_free(session);
 *         wnw_prompt_free(prompt);
 *         wnw_model_free(model);
 *         return rc == WNW_OK ? 0 : 1;
 *     }
 *
 * For one document and questions about it three calls are enough: wnw_open, wnw_ask, wnw_close. The functions of the example
 * follow them. Authors of methods include winnow_method.h.
 *
 * Conventions
 *   - Fallible functions return WNW_OK (0) or a negative wnw_status, and wnw_last_error() explains the failure to a person.
 *     Out-parameters come first and are NULL (or zero) after a failure. A required pointer that is NULL is E_ARG; functions
 *     without a status return 0, false, NULL or "" then. Functions that free take NULL.
 *   - Counts are n_*, il = layer, ih = KV head, shapes are written outermost first: [n_head_kv][n_tokens].
 *   - Structs that may gain fields begin with struct_size, the size that the program was compiled with. The wnw_*_default
 *     functions set it, and a literal begins with WNW_INIT(type): {WNW_INIT(wnw_run), .policy = p}. Fields that an older
 *     program does not know have their defaults, and the library writes no more than struct_size bytes; 0, or more than the
 *     library knows, is E_ARG. Structs without a struct_size, which are passed by value or in arrays, never grow.
 *   - E_NOMEM: if memory runs out in this library, the call fails, nothing leaks, and the session can go on. Tokens that were
 *     read stay read (wnw_session_n_past). A model file that does not fit into memory gives E_NOMEM, too.
 *   - ggml, libllama and jansson end the process if an allocation of their own fails, or an assertion. Winnow checks first that
 *     they can get the memory, and refuses model files that are known to fail. ggml_set_abort_callback lets a program act before.
 *   - Numbers in text (recipes, profiles, messages) have a decimal point in every locale.
 *   - Threads: models and policies are read-only after creation and may be shared. A session, sampler, plan or registry
 *     belongs to one thread at a time; sessions that share an engine belong to the same thread. The library has no other
 *     state than the log sink and an error text per thread. It never prints and never exits.
 *   - Before 1.0 there is no ABI promise.
 */
#ifndef WINNOW_H
#define WINNOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define WNW_ZERO \
    {            \
    }
#else
#define WNW_ZERO \
    {            \
        0        \
    }
#endif

/* Marks the functions that a shared library exports. */
#if defined(__GNUC__)
#define WNW_API __attribute__((visibility("default")))
#else
#define WNW_API
#endif

/* First initialiser of a struct that begins with struct_size; fields that are not named become 0. In C++ from C++20 on. */
#define WNW_INIT(type) .struct_size = (uint32_t)sizeof(type)

/* Defines NAME(void), which returns a `type` with the struct_size that the program was compiled with and zeros, but for what
 * the assignments to `p` say. */
#define WNW_DEFAULT_WITH(type, name, assignments) \
    static inline type name(void)                 \
    {                                             \
        type p = WNW_ZERO;                        \
        p.struct_size = (uint32_t)sizeof p;       \
        assignments;                              \
        return p;                                 \
    }
#define WNW_DEFAULT(type, name) WNW_DEFAULT_WITH(type, name, (void)0)

#define WNW_VERSION_MAJOR  0
#define WNW_VERSION_MINOR  2
#define WNW_VERSION_PATCH  0
#define WNW_VERSION_STRING "0.2.0"

/* ======== What every program needs ======== */

/* ---- Errors ---- */

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
    X(E_BACKEND, -11, "the compute backend failed")                                 \
    X(E_NOT_FINITE, -12, "the model computes values that are not numbers")

typedef enum wnw_status {
#define WNW_X(name, value, text) WNW_##name = (value),
    WNW_STATUS_MAP(WNW_X)
#undef WNW_X
} wnw_status;

/* The sentence for a status code. Static; safe in any thread. */
WNW_API const char *wnw_strerror(int status);

/* What went wrong in the last failing call of this thread: one sentence, no newline, "" if none. Borrowed until the next
 * failing call of this thread. */
WNW_API const char *wnw_last_error(void);

/* Releases memory whose description names wnw_free. NULL is allowed. */
WNW_API void wnw_free(void *p);

/* ---- Model ---- */

typedef struct wnw_model wnw_model;

typedef struct wnw_model_params {
    uint32_t struct_size;
    bool repack; /* copy weights into CPU-friendly layouts where ggml has them: faster prefill, more memory.
                    Default on */
    /* Folder in which digests of large files are kept, so that wnw_model_fingerprint reads all bytes of a file once and not in
     * every process; made where it is missing. NULL = none. Copied. */
    const char *digests;
} wnw_model_params;

WNW_DEFAULT_WITH(wnw_model_params, wnw_model_default_params, p.repack = true)

/* Opens the GGUF file at `path`: hyper-parameters, tokenizer and memory-mapped weights. params NULL = defaults. Of a model
 * split in files, `path` is the first; the others are found next to it by their names (NAME-00001-of-00003.gguf). Errors: E_IO
 * (cannot open a file), E_FORMAT (no regular file, no GGUF, truncated, contradictory, files that do not belong together),
 * E_UNSUPPORTED (the architecture, in which case the message lists the supported ones; a file that is no model; a tensor or key
 * that the library does not compute with, which the message names), E_NOMEM. The model may be shared by threads; release it with
 * wnw_model_free after every session and engine on it. */
WNW_API int wnw_model_open(wnw_model **out, const char *path, const wnw_model_params *params);
WNW_API void wnw_model_free(wnw_model *m);

/* ======== Three calls for a document and questions ======== */

/* A model and the document that it has read last. It belongs to one thread at a time. examples/ask.c is a whole program. */
typedef struct wnw_reader wnw_reader;

/* Receives what an answer adds to its text: whole UTF-8 characters, n_bytes of them, after n_tokens tokens. Returns false to
 * end the answer. */
typedef bool (*wnw_text_fn)(const char *text, size_t n_bytes, int32_t n_tokens, void *user);

/* Opens the GGUF file at `path` with the defaults of wnw_model_open, whose errors these are. Release it with wnw_close. */
WNW_API int wnw_open(wnw_reader **out, const char *path);

/* Answers a question, greedily and with at most 512 tokens, and gives the text to on_text (may be NULL) as it comes.
 *   policy: a recipe for wnw_policy_parse; NULL or "auto" = the one that fits the model and the document best, as far as is known without profiles
 *   ratio: fraction of the document's entries that are removed, 0 <= ratio < 1; 0 = all stay
 *   document: UTF-8, read and compressed before the question; NULL = the one that was read last, whose policy and ratio are kept
 * The same document, policy and ratio as in the last call are not read again. Without any document the prompt is the question
 * alone. Errors: E_ARG (no question; a recipe that cannot be parsed), E_RANGE (ratio), E_FULL (longer than the context), those
 * of wnw_prompt_build, wnw_session_read and wnw_generate. An answer that on_text ends is no error. */
WNW_API int wnw_ask(wnw_reader *r, const char *policy, double ratio, const char *document,
                    const char *question, wnw_text_fn on_text, void *user);

/* The session that has read the document, for wnw_cache_get_stats and the like; NULL before. Borrowed until the next call. */
WNW_API const struct wnw_session *wnw_reader_session(const wnw_reader *r);

WNW_API void wnw_close(wnw_reader *r);

/* ---- Prompt ---- */

/* One message of a conversation. */
typedef struct wnw_chat_message {
    const char *role;    /* "system", "user", "assistant", ...: letters, digits, '_' and '-' */
    const char *content; /* UTF-8 */
} wnw_chat_message;

/* How prompts are laid out. Pointers are borrowed for the call. What the template wrote is parsed for control tokens, and roles
 * are; messages are not, so that "<|im_end|>" in a document cannot end its turn (decision 047). */
typedef struct wnw_prompt_params {
    uint32_t struct_size;
    bool raw;                         /* no template: BOS where the vocabulary adds one, then the text */
    const char *document;             /* NULL = none */
    const char *question;             /* NULL = none; in one message with the document, after a blank line */
    const char *system;               /* system message; NULL = the template's own, if it has one */
    const wnw_chat_message *messages; /* [n_messages] earlier turns; NULL = none */
    int32_t n_messages;
    const char *chat;  /* name of one of libllama's chat templates; NULL = the model's own */
    const char *jinja; /* a Jinja template instead of the model's own; NULL = none */
    bool special;      /* messages, which are trusted, are parsed for control tokens too */
    bool verbatim;     /* for measurements: messages are put into the template untrimmed, without a blank line
                          after the document, and may be empty */
    int64_t now;       /* the date, seconds since 1970 (then in UTC); 0 = the present, in local time, for a
                          conversation when it is opened */
} wnw_prompt_params;

/* A `now` for prompts that must have the same tokens every day, as in measurements: 26 July 2024. */
#define WNW_PROMPT_NOW 1721952000

WNW_DEFAULT(wnw_prompt_params, wnw_prompt_default_params)

/* A user's turn in two pieces, so that every phase reads the same tokens: [template head + document] and [question + template
 * tail + beginning of the answer]. winnow_tools.h has all its parts. */
typedef struct wnw_prompt wnw_prompt;

/* Renders and tokenises a first turn. The model's Jinja template is run as transformers runs it: messages,
 * add_generation_prompt, bos_token and eos_token are set, tools and documents are none. A BOS that the vocabulary asks for and the
 * template did not write is put in front. A template of libllama by name (`chat`), or the model's in a build without the Jinja
 * engine, is a fixed pattern without a default system message. Templates are programs from the model's file, and
 * run within bounds (decision 046). *out is released with wnw_prompt_free. Errors: E_ARG (no text; an unknown
 * name in `chat`; a role that is no word; a system message or turns without a template), E_UNSUPPORTED (the template refuses the
 * messages, drops the system message, cannot be run, exceeds a bound, or changes the text so that the border between document and
 * question is lost), E_RANGE, E_NOMEM. */
WNW_API int wnw_prompt_build(wnw_prompt **out, const wnw_model *m, const wnw_prompt_params *params);
WNW_API void wnw_prompt_free(wnw_prompt *p);
/* The tokens of both pieces, [*n], borrowed, and the number of those of the first. */
WNW_API const int32_t *wnw_prompt_tokens(const wnw_prompt *p, int32_t *n);
WNW_API int32_t wnw_prompt_n_context(const wnw_prompt *p);

/* ---- Policy ---- */

typedef struct wnw_policy wnw_policy;
typedef struct wnw_registry wnw_registry; /* parts from outside the library (winnow_method.h) */

/* Parses a recipe, `name[:key=value,...][+name[:...]]...`. A name may say its slot: score=, aggregate=, layer=, head=, select=,
 * positions= or contents=, as in `snapkv+head=adakv`. registry may be NULL. E_ARG: the message names the word that is unknown, the
 * value that is out of range or the parts that cannot be combined, and makes a suggestion. A policy may be shared by threads, and
 * must outlive the sessions that use it; release it with wnw_policy_free. */
WNW_API int wnw_policy_parse(wnw_policy **out, const char *recipe, const wnw_registry *registry);
WNW_API void wnw_policy_free(wnw_policy *p);
/* Canonical form with every default written out; parses to an equal policy. Borrowed from the policy. */
WNW_API const char *wnw_policy_string(const wnw_policy *p);

/* How much a policy keeps. */
typedef enum wnw_size_kind {
    WNW_SIZE_NONE,   /* the policy's own rule, else ratio 0.5 */
    WNW_SIZE_BUDGET, /* average entries kept per layer and KV head, >= 1 */
    WNW_SIZE_RATIO,  /* fraction removed, 0 <= r < 1 */
    WNW_SIZE_BYTES, /* bytes that kept keys and values are allocated in, where a plan fits them; else their own */
} wnw_size_kind;

/* A size, in the field that `kind` names. It counts the compressed part of the prompt, protected entries included, without
 * sliding-window layers. */
typedef struct wnw_size {
    wnw_size_kind kind;
    int64_t budget;
    double ratio;
    uint64_t bytes;
} wnw_size;

/* ---- Session ---- */

typedef struct wnw_session wnw_session;

typedef enum wnw_kv_type { WNW_KV_F16, WNW_KV_F32, WNW_KV_Q8_0, WNW_KV_Q4_0 } wnw_kv_type;
typedef enum wnw_attn { WNW_ATTN_OWN, WNW_ATTN_GGML, WNW_ATTN_F32 } wnw_attn;

/* Zeros are the defaults. */
typedef struct wnw_session_params {
    uint32_t struct_size;
    int32_t n_ctx;     /* longest timeline in tokens, 0 = what the model was trained for */
    int32_t n_ubatch;  /* prompt tokens per graph, 0 = 512 */
    int32_t n_threads; /* upper limit, fewer while other programs use the cores; 0 = usable cores */
    wnw_kv_type kv_type;
    /* OWN: this library's kernels over heads of different lengths. If the CPU can and the cache is not F32, they multiply
     * prompts in bf16, and compute scores of far entries in 8 bits. F32: the same kernels, always in float32. GGML: standard ggml
     * operations, a reference for comparison. */
    wnw_attn attn;
    /* Called during prefill after each ubatch with tokens done and to do; return false to cancel (E_CANCELLED). NULL = none. */
    bool (*progress)(int32_t done, int32_t total, void *user);
    void *progress_user;
    /* With kv_type Q8_0 or Q4_0 and the own attention: the last kv_tail entries of every head, and its first 64, stay f16;
     * those between are quantised in blocks of 64, so that a tail has up to 63 entries more. Entries that compressions keep stay
     * as they are stored. 0 = every entry is quantised at once; else 32 or more (128 is a good choice). */
    int32_t kv_tail;
    /* With kv_type Q8_0 or Q4_0: store keys and values as they are. By default every row of such a cache, also of its tail, is
     * rotated by Hadamard matrices of up to 256 elements (keys) and 64 (values), as llama.cpp does since 2026. Attention stays
     * what it is, and rounding loses less, because outliers are spread. Other caches are never rotated. */
    bool kv_unrotated;
} wnw_session_params;

WNW_DEFAULT(wnw_session_params, wnw_session_default_params)

/* Makes a new timeline with an engine of its own. The model must outlive it; release it with wnw_session_free. params NULL =
 * defaults. E_UNSUPPORTED: the head size does not fit kv_type, or a tail with the ggml attention. E_ARG: a tail of a cache that is
 * not quantised. E_RANGE: a number of params is out of range. E_NOMEM. */
WNW_API int wnw_session_new(wnw_session **out, const wnw_model *m, const wnw_session_params *params);
WNW_API void wnw_session_free(wnw_session *s);

/* When entries are dropped while a prompt is read. */
typedef enum wnw_phase {
    WNW_PHASE_END,    /* read everything, then compress once */
    WNW_PHASE_LAYER,  /* the whole prompt through one layer, compress that layer, then the next */
    WNW_PHASE_CHUNK,  /* compress after every chunk */
    WNW_PHASE_DECODE, /* while tokens are generated */
} wnw_phase;

typedef struct wnw_profile wnw_profile;

/* How a session is to read and compress. Zeros are the defaults. Some policies have rules of their own: see wnw_recursive and
 * `slides` of head budgets in winnow_method.h. */
typedef struct wnw_run {
    uint32_t struct_size;
    wnw_phase phase;            /* END, LAYER or CHUNK */
    const wnw_policy *policy;   /* borrowed until the next begin; NULL = everything stays */
    wnw_size size;              /* a ratio counts all tokens since the rules were set, over all turns */
    int32_t chunk;              /* CHUNK: tokens per chunk; 0 = 512, or a recursive policy's own */
    int32_t every;              /* decoded tokens between two compressions; 0 = decoding does not compress */
    int64_t target;             /* average entries per layer and KV head after each of these compressions;
                                   0 = the count that the last prompt's size came to */
    const wnw_profile *profile; /* calibration results, borrowed until the next begin; NULL = none */
    /* The prompt that will be read or was read. It serves policies that treat template and text differently, or that judge the
     * document by the question after it. The session copies what it needs of it; NULL = not known. */
    const wnw_prompt *prompt;
    /* In place of `policy`: a recipe for wnw_policy_parse, or "auto", or "auto+quality:q=Q" with a quality Q above 0 and below
     * 1 in place of a size. The session chooses by the model, the profile, the size and the prompt's length, and parses it in
     * wnw_session_begin; wnw_session_policy has what came of it. NULL = `policy` */
    const char *recipe;
    const struct wnw_run_more *more; /* what few programs set (winnow_method.h); NULL = the defaults */
    /* In place of `target`: the share of the entries there that each of these compressions removes, 0 < every_ratio < 1; with
     * every_ratio_read the share of all tokens read under these rules that is gone after it. 0 = `target` */
    double every_ratio;
    bool every_ratio_read;
} wnw_run;

WNW_DEFAULT(wnw_run, wnw_run_default)

/* Sets how the session reads and compresses from now on: it observes what the policies need, and follows the run's rules in
 * wnw_session_read and wnw_session_decode. The call is allowed at any time. It replaces everything that an earlier call has set,
 * and an empty run ends rules and observing. Observations that the new policies need too go on; others begin now: for tokens read
 * before, attention sums and maxima count the queries from here on, and their own queries are missing. After a failure everything
 * is as it was before the call. Errors: E_ARG (the policy is not allowed in the phase; other fields of the rules are set without a
 * policy; every_ratio and a target; a task without tokens; n_policies negative or a NULL in its list; two policies whose query statistics leave out
 * different numbers of first tokens), E_MISMATCH (the policy's profile is missing, or of another model), E_RANGE (another negative
 * number; a target or a recursive policy's budget that cannot hold the entries that the policy protects; an id that is not a
 * token), E_FULL (a task or template longer than the model was trained for), E_UNSUPPORTED (a policy that renumbers, where heads
 * hold different numbers of entries or a layer has a sliding window), E_NOMEM. */
WNW_API int wnw_session_begin(wnw_session *s, const wnw_run *run);
/* The policy of these rules; NULL where there are none. Borrowed until the next begin, if `recipe` named it. */
WNW_API const wnw_policy *wnw_session_policy(const wnw_session *s);

/* The result of a compression. */
typedef struct wnw_report {
    uint32_t struct_size;
    char warning[260]; /* "" or one sentence, e.g. that a window was shrunk */
    double kept_mean;  /* mean entries per KV head, over the layers that have no sliding window */
    int64_t entries_before, entries_after; /* over all layers and KV heads, sliding-window layers included */
    uint64_t kv_bytes_before, kv_bytes_after; /* bytes allocated for K and V */
    /* Milliseconds for reading tokens (wnw_session_read alone), observing the cache (a second pass included), scores, budgets
     * and selection, and compaction. They add up to the time of the call. */
    double read_ms, observe_ms, score_ms, select_ms, compact_ms;
    /* Set by plans and by wnw_session_read under rules, else 0: the numbers of first and last entries that every KV head keeps
     * regardless of their score. After reading by CHUNK: those that no chunk's compression could drop. Heads that keep all their
     * entries do not count. If all heads do, protected_first is the number of tokens read. */
    int32_t protected_first, protected_last;
} wnw_report;

WNW_DEFAULT(wnw_report, wnw_report_default)

/* Reads a piece of the prompt, tokens[n], and compresses it under the rules of wnw_session_begin: a first prompt, or the next
 * turn on a compressed cache. Without rules it does the same as wnw_session_prefill. With rules wnw_session_decode compresses too,
 * as they say; tokens read by wnw_session_prefill stay whole until the next compression. With +rerotate and CHUNK a prompt may be
 * longer than the context: E_FULL is returned only where the kept entries and a chunk together do not fit into it. report may be
 * NULL. Its times are sums over all compressions; entries_before counts all entries present or read, as if none had been dropped;
 * kv_bytes_before is the most that was allocated before a compression. When reading by LAYER fails or is cancelled the session is
 * empty, because layers would hold different tokens; after other failures it holds the tokens that were read. Other errors are
 * those of wnw_session_prefill and wnw_session_plan. */
WNW_API int wnw_session_read(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report);

/* Appends one token at the next position and computes its logits. Errors as wnw_session_prefill; a failure of the compression
 * that rules ask for comes after the token was read. */
WNW_API int wnw_session_decode(wnw_session *s, int32_t token);

/* Logits [n_vocab] of the last token read, all of them finite. Borrowed until the next call on the session; NULL before any
 * token was read and after E_NOT_FINITE. */
WNW_API const float *wnw_session_logits(const wnw_session *s);

/* ---- Sampling ---- */

typedef struct wnw_sampler wnw_sampler;

typedef struct wnw_sampler_params {
    uint32_t struct_size;
    float temp;    /* 0 = greedy; default 0 */
    int32_t top_k; /* 0 = off; default 40 */
    float top_p;   /* 1 = off; default 0.95 */
    uint32_t seed; /* default 42 */
    /* Divides the logits of the last 64 picked tokens, as in llama.cpp; 0 or 1 = off; default 1. */
    float repeat_penalty;
} wnw_sampler_params;

WNW_DEFAULT_WITH(wnw_sampler_params, wnw_sampler_default_params,
                 (p.top_k = 40, p.top_p = 0.95f, p.seed = 42, p.repeat_penalty = 1.0f))

/* Makes a sampler; release it with wnw_sampler_free. params NULL = defaults. E_RANGE: a number of params is out of range. A
 * sampler belongs to one thread at a time. */
WNW_API int wnw_sampler_new(wnw_sampler **out, const wnw_sampler_params *params);
WNW_API void wnw_sampler_free(wnw_sampler *sp);
/* Picks a token from logits[n_vocab]; -1 where logits or the sampler is NULL. */
WNW_API int32_t wnw_sampler_pick(wnw_sampler *sp, const float *logits, int32_t n_vocab);

/* Why generating ended. */
typedef enum wnw_end {
    WNW_END_TOKEN,     /* the model ended its turn; the token that says so is not in the result */
    WNW_END_STOP,      /* a stop string came */
    WNW_END_LIMIT,     /* n_max tokens were generated */
    WNW_END_CANCELLED, /* on_text returned false */
    WNW_END_FULL,      /* the context has no room for another token */
} wnw_end;

typedef struct wnw_generate_params {
    uint32_t struct_size;
    int32_t n_max;           /* tokens at most; 0 = as many as the context holds */
    const char *const *stop; /* [n_stop] texts that end the answer and are no part of it; none is empty */
    int32_t n_stop;
    /* Called after every token with what it adds to the text, which may be nothing: whole characters, held back while they may
     * begin a stop string; once more at the end if some were. Returns false to cancel. NULL = none. */
    bool (*on_text)(const char *text, size_t n_bytes, int32_t n_tokens, void *user);
    void *user;
} wnw_generate_params;

WNW_DEFAULT(wnw_generate_params, wnw_generate_default_params)

typedef struct wnw_generated {
    uint32_t struct_size;
    wnw_end end;
    int32_t *tokens; /* [n_tokens], owned */
    int32_t n_tokens;
    int32_t n_read; /* first tokens that the session has read: all, or all but the last */
    char *text;     /* [n_text] UTF-8, NUL-terminated, owned; U+FFFD replaces invalid bytes */
    size_t n_text;
} wnw_generated;

WNW_DEFAULT(wnw_generated, wnw_generated_default)

/* Picks tokens from the session's logits and has it decode them until one of the ends above. params NULL = defaults. After a
 * failure *out has what was generated before; release it with wnw_generated_clear in any case. Errors: E_ARG (there are no
 * logits), E_RANGE (a negative number, an empty stop string), those of wnw_session_decode. */
WNW_API int wnw_generate(wnw_generated *out, wnw_session *s, wnw_sampler *sp,
                         const wnw_generate_params *params);
WNW_API void wnw_generated_clear(wnw_generated *g);

/* Whether the token ends generation. */
WNW_API bool wnw_token_is_eog(const wnw_model *m, int32_t token);
/* Text of one token, "<|im_end|>" for a control token, "" for an id without a text. *text is owned by the caller, who releases
 * it with wnw_free. */
WNW_API int wnw_token_piece(const wnw_model *m, int32_t token, char **text);

/* ======== More of models and text ======== */

/* Version of the linked library, "major.minor.patch". The string is static. */
WNW_API const char *wnw_version(void);

typedef enum wnw_log_level { WNW_LOG_DEBUG, WNW_LOG_INFO, WNW_LOG_WARN } wnw_log_level;

/* Log sink for the whole process; text has no trailing newline. NULL (the default) drops everything. Messages of ggml and
 * libllama go the same way, unless the program has set a callback of its own with llama_log_set, which then stays. What libllama
 * warns of while it reads a vocabulary comes as WNW_LOG_WARN. Call this before other threads use the library. */
typedef void (*wnw_log_fn)(wnw_log_level level, const char *text, void *user);
WNW_API void wnw_set_log(wnw_log_fn fn, void *user);

typedef struct wnw_model_info {
    uint32_t struct_size;
    int32_t n_layer;         /* transformer layers */
    int32_t n_layer_swa;     /* layers with a sliding window; policies leave those alone */
    int32_t n_head;          /* query heads */
    int32_t n_head_kv;       /* KV heads */
    int32_t n_embd;          /* hidden size */
    int32_t n_embd_head;     /* size of one head, d */
    int32_t n_ctx_train;     /* longest context the model was trained for, tokens */
    int32_t n_vocab;         /* size of the vocabulary */
    int32_t n_swa;           /* sliding window in tokens, 0 = none */
    const char *arch;        /* "llama", "qwen2", ...; borrowed from the model */
    const char *name;        /* general.name, or the file's base name; borrowed from the model */
    uint64_t weight_bytes;   /* bytes of weights in the file */
    uint64_t repacked_bytes; /* bytes of weights held a second time in a repacked layout */
} wnw_model_info;

WNW_DEFAULT(wnw_model_info, wnw_model_info_default)

/* Fills *out. E_ARG: a pointer is NULL (zeros and "" where it is the model), or struct_size is not set. */
WNW_API int wnw_model_get_info(const wnw_model *m, wnw_model_info *out);

/* Token ids of `text` (len bytes). add_special: add BOS/EOS as the vocabulary asks. parse_special: text such as "<|im_start|>"
 * becomes the control token; without it the text never makes one. *tokens, [*n_tokens], is owned by the caller, who releases it
 * with wnw_free. Long words are tokenised on a thread of the library's, because libllama takes stack by the character. Errors:
 * E_RANGE (too long; a run of characters that would take too much stack or time: the sentence has its byte), E_UNSUPPORTED (the
 * model has no tokenizer; libllama cannot take the text), E_NOMEM. */
WNW_API int wnw_tokenize(const wnw_model *m, const char *text, size_t len, bool add_special,
                         bool parse_special, int32_t **tokens, int32_t *n_tokens);

/* Text of n_tokens tokens, NUL-terminated, without control tokens. *text is owned by the caller, who releases it with wnw_free. */
WNW_API int wnw_detokenize(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text);

/* ======== More of sessions ======== */

/* Makes a second timeline that goes on where s is: cache, logits, observations, tasks, template, rules and masked heads are
 * copied, policies and profiles stay borrowed. Later calls on one do not change the other. The model is shared, and so is an
 * engine that s was made on. */
WNW_API int wnw_session_copy(wnw_session **out, const wnw_session *s);

/* Forgets all tokens and frees the cache. Rules, tasks, the profile and masked heads stay; question and template are forgotten. */
WNW_API int wnw_session_reset(wnw_session *s);

/* Takes back all tokens but the first n_past; read again in the same pieces, they leave the same session. There are no logits
 * until a token is read. n_past 0 empties the session; what was said of the prompt stays. E_UNSUPPORTED, with the reason, and
 * nothing changes: later entries had been read when entries were dropped or renumbered, sliding windows or tails have moved on, or
 * a policy observes sums over tokens. E_RANGE: n_past is not 0 .. wnw_session_n_past. */
WNW_API int wnw_session_rewind(wnw_session *s, int32_t n_past);

/* Appends n prompt tokens and compresses nothing. on_logits NULL: only the last token's logits are computed
 * (wnw_session_logits); else it receives the logits [n_vocab] of the i-th token of the call, and returns false to cancel. E_FULL:
 * more tokens than n_ctx; nothing is changed then. After E_BACKEND, E_NOMEM or E_CANCELLED the session holds the tokens of the
 * ubatches that were finished. E_NOT_FINITE: logits are infinite or not numbers, because weights are damaged or values are too
 * large for the cache's type; the tokens are read, but there are no logits. */
typedef bool (*wnw_logits_fn)(int32_t i, const float *logits, void *user);
WNW_API int wnw_session_prefill(wnw_session *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits,
                                void *user);

/* Position of the next token. It is the number of tokens read so far; after entries got new positions, it is the number of
 * entries per head that were kept then plus the tokens read since. */
WNW_API int32_t wnw_session_n_past(const wnw_session *s);

typedef struct wnw_cache_stats {
    uint32_t struct_size;
    int32_t growth;         /* entries per growth block of one head */
    int64_t n_entries;      /* over all layers and KV heads */
    uint64_t bytes;         /* bytes allocated for keys and values now */
    uint64_t bytes_entries; /* of the entries' keys and values, without room for more */
    uint64_t bytes_full;    /* bytes that an uncompressed cache of all tokens read would allocate */
    uint64_t bytes_meta;    /* allocated for positions and for what is recorded of entries */
    uint64_t bytes_swa;     /* the part of `bytes` that is of layers with a sliding window */
} wnw_cache_stats;

WNW_DEFAULT(wnw_cache_stats, wnw_cache_stats_default)

/* Fills *out. E_ARG: a pointer is NULL (zeros where it is the session), or struct_size is not set. */
WNW_API int wnw_cache_get_stats(const wnw_session *s, wnw_cache_stats *out);

/* Plans and applies (winnow_method.h) at once, without rules. With +rerotate wnw_session_renumber follows; a cache or plan that it would refuse is refused before the
 * cache changes. Errors are those of the three functions. */
WNW_API int wnw_session_compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size,
                                 wnw_report *report);

/* ======== Profiles: calibration results of one model ======== */

/* Makes an empty profile for m, whose shapes and fingerprint every file must match. m may be freed afterwards. Once all files
 * are added the profile does not change and may be shared by threads. */
WNW_API int wnw_profile_new(wnw_profile **out, const wnw_model *m);
WNW_API void wnw_profile_free(wnw_profile *p);
/* Adds the results of one JSON file (docs/reference/profiles.md); kinds already present are replaced. E_IO: cannot be read.
 * E_FORMAT: not a regular file or not a profile, damaged, values out of range, too large for a profile of m. E_MISMATCH: the file
 * is of another model. CompilerKV's tables of another model with the same number of heads are added, but policies without force=1
 * refuse them. The profile is unchanged after an error. */
WNW_API int wnw_profile_add_file(wnw_profile *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_H */
