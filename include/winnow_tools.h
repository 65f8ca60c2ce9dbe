/* SPDX-License-Identifier: MIT */
/*
 * For tools around the library: names and sizes for people, and the table that "auto" chooses a policy from. Programs that only
 * read and answer do not need this header. Conventions are those of winnow.h.
 */
#ifndef WINNOW_TOOLS_H
#define WINNOW_TOOLS_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The machine, this build, a model file ---- */

/* Number of cores that this process may use. */
WNW_API int32_t wnw_usable_cores(void);
/* Name of the attention kernels in use: "avx512-bf16", "avx512", "avx2", "neon", "scalar". Static. */
WNW_API const char *wnw_kernel_name(void);

#define WNW_FINGERPRINT_SIZE 33 /* bytes of a fingerprint's text, with the NUL */

/* Writes 32 hexadecimal digits and a NUL: 128 bits that identify what decides the model's numbers and tokens. They are made of
 * all keys of the GGUF file but remarks such as general.description, and of the name, type, shape and all bytes of every tensor. A
 * model has the same fingerprint whole and split, and with its keys and tensors in any order. The first call for a model reads all
 * its weights, unless wnw_model_params.digests has them. "" where m is NULL. Thread-safe. */
WNW_API void wnw_model_fingerprint(const wnw_model *m, char out[WNW_FINGERPRINT_SIZE]);

/* Whether the model's files are as they were opened. To be called before something is stored under the fingerprint: a program that
 * overwrites an open file changes the weights. wnw_session_store and stores call it. A file that is renamed or removed stays
 * as it is. E_MISMATCH: a file was written to. */
WNW_API int wnw_model_check_files(const wnw_model *m);

/* The fingerprint that the model at `path` would have, also where wnw_model_open refuses what it computes. params as
 * for wnw_model_open. Errors: E_IO and E_FORMAT as there, E_UNSUPPORTED (a file that is no model), E_NOMEM,
 * E_MISMATCH (it was overwritten meanwhile); out is "" then. */
WNW_API int wnw_file_fingerprint(const char *path, const wnw_model_params *params,
                                 char out[WNW_FINGERPRINT_SIZE]);

/* Whether layer il uses a sliding window; false where there is no such layer. */
WNW_API bool wnw_model_layer_is_swa(const wnw_model *m, int32_t il);

/* ---- Text ---- */

/* Whether `text` (len bytes) certainly has more than n_tokens tokens, from the bytes alone, because tokenising takes
 * fifty times the text's memory. False where it may have fewer, or where nothing is known of the vocabulary. *n_bytes
 * (may be NULL) becomes the length of a beginning of the text that has more already; len where the answer is false. */
WNW_API bool wnw_text_exceeds(const wnw_model *m, const char *text, size_t len, int32_t n_tokens,
                              size_t *n_bytes);

/* The text that these are the tokens of: that of wnw_token_piece for each, without the blank that some vocabularies of SentencePiece
 * put before a text and after each special token. at [n_tokens + 1], may be NULL, becomes the byte where each token begins, and the
 * length. *text is owned by the caller, who releases it with wnw_free. Errors: E_ARG, E_NOMEM. */
WNW_API int wnw_text_of(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, size_t *at, char **text);

/* ---- What a prompt is made of ---- */

/* Bytes [from, to) of a text. */
typedef struct wnw_bytes {
    size_t from, to;
} wnw_bytes;

/* Arrays are borrowed. */
typedef struct wnw_prompt_parts {
    uint32_t struct_size;
    int32_t n_tokens;      /* tokens of both pieces */
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_context;     /* tokens of the first piece */
    /* The tokens that the template wrote. A token that spans template and text counts as text; without a template the BOS
     * counts as text too. n_prefix: first tokens of the conversation, BOS and system message included; -1: not known, which only
     * keys of stores take. */
    int32_t n_prefix;
    const int32_t *suffix; /* [n_suffix]: the template tail, which ends the user's turn and opens the next */
    int32_t n_suffix;      /* 0 without a template */
    const char *text;      /* [n_text] the conversation so far, NUL-terminated */
    size_t n_text;
    const wnw_bytes *plain; /* [n_plain]: bytes of the text that were not parsed for control tokens */
    int32_t n_plain;
    int32_t n_past; /* tokens of the conversation before these, 0 in a first turn */
} wnw_prompt_parts;

WNW_DEFAULT(wnw_prompt_parts, wnw_prompt_parts_default)

/* Fills *out with the parts of a prompt. E_ARG: a pointer is NULL (zeros where it is the prompt), or struct_size is not set. */
WNW_API int wnw_prompt_get_parts(const wnw_prompt *p, wnw_prompt_parts *out);
/* The same as a value; zeros for NULL. */
static inline wnw_prompt_parts wnw_prompt_parts_of(const wnw_prompt *p)
{
    wnw_prompt_parts parts = wnw_prompt_parts_default();
    (void)wnw_prompt_get_parts(p, &parts);
    return parts;
}
/* A prompt of tokens that the program made itself. The tokens and the suffix are copied; text and plain are not read. Release it
 * with wnw_prompt_free. E_ARG: an array is NULL. E_RANGE: a number is negative, or n_context above n_tokens. E_NOMEM. */
WNW_API int wnw_prompt_new(wnw_prompt **out, const wnw_prompt_parts *parts);

/* ---- Sizes and names ---- */

/* Finds the type of a name: "f16" -> WNW_KV_F16 and so on. E_ARG: not a name; the message lists them. */
WNW_API int wnw_kv_type_parse(wnw_kv_type *out, const char *name);
/* The name; "?" for a number that is no type. Static. */
WNW_API const char *wnw_kv_type_name(wnw_kv_type t);
/* Bytes of one key plus one value of n_embd_head elements. */
WNW_API size_t wnw_kv_entry_bytes(wnw_kv_type t, int32_t n_embd_head);
/* Bytes that the keys and values of n_layer layers are allocated in where every KV head has n entries: heads grow in blocks, layers
 * in pages (not with WNW_ATTN_GGML, whose blocks are larger). 0 for heads that the type cannot hold, and where a number is
 * not positive. Thread-safe. */
WNW_API uint64_t wnw_kv_bytes(wnw_kv_type t, int32_t n_embd_head, int32_t n_head_kv, int32_t n_layer,
                              int32_t n);

/* Name of a phase: "end", "layer", "chunk", "decode". The string is static. */
WNW_API const char *wnw_phase_name(wnw_phase phase);
/* The shortest recipe that parses to an equal policy, for people to read: `snapkv+adakv`. Parsing it again needs a
 * registry with its parts from outside the library. *text is owned by the caller, who releases it with wnw_free. */
WNW_API int wnw_policy_short(const wnw_policy *p, char **text);

/* Whether the policy keeps everything ("full"). */
WNW_API bool wnw_policy_is_full(const wnw_policy *p);
/* Whether a content rule changes entries that are kept, such as "+merge". */
WNW_API bool wnw_policy_rewrites(const wnw_policy *p);

/* Whether kept tokens get new positions after every compression, "+rerotate". Then a prompt read by CHUNK may be longer
 * than the context. */
WNW_API bool wnw_policy_rerotates(const wnw_policy *p);

/* Whether the policy has a size of its own where none is given (LagKV's retention, a score threshold). */
WNW_API bool wnw_policy_has_own_size(const wnw_policy *p);

/* Whether the policy drops entries at times of its own while tokens are generated (LagKV after each block, DuoAttention with each token), so
 * that `every` of wnw_run and what it leaves have no effect. */
WNW_API bool wnw_policy_has_own_times(const wnw_policy *p);

/* Whether a policy can work in the phase; if not, *reason (may be NULL) becomes a sentence, which is static. */
WNW_API bool wnw_policy_allows(const wnw_policy *p, wnw_phase phase, const char **reason);

/* ---- How "auto" chooses ---- */

/* What is known where a policy is to be chosen. Zeros mean that nothing is. */
typedef struct wnw_policy_facts {
    uint32_t struct_size;
    wnw_phase phase;     /* when the prompt is compressed: END, LAYER or CHUNK */
    bool decodes;        /* entries go while decoding too */
    bool question_known; /* what is compressed ends with the question; false: it comes later */
    /* how the model turns keys with positions is not known, as it may be through libllama */
    bool rope_unknown;
    uint32_t profiles; /* bit set of the wnw_profile_kind that are available */
    /* smallest size, a share of the entries, that a profile of shares was measured at; 0 = not known */
    double shares_least;
    double kept;         /* share of the entries that is to stay; 0 = not known */
    int32_t n_tokens;    /* of the prompt; 0 = not known */
    int32_t n_ctx_train; /* positions that the model was trained for; 0 = not known */
    /* entries are there that were read for another policy or none, so that nothing was noted of them */
    bool was_read;
    /* tokens of the longest prompts that gates on hidden states are for, as their profile says; 0 = not known */
    int32_t gate_reach;
    /* tokens can be fed a second time, as in sessions of winnow's own and not through libllama's graphs */
    bool feeds_again;
    /* the queries of all tokens cannot be had, as where several layers read one cache */
    bool queries_unknown;
    /* smallest size, a share of the entries, that gates on what is cached are better for than a profile of shares alone, as their
     * own profile says; 0 = any */
    double gate_least;
    /* more questions follow the known one, as in a server: no policy is chosen that serves one question only */
    bool more_questions;
} wnw_policy_facts;

WNW_DEFAULT(wnw_policy_facts, wnw_policy_facts_default)

/* A row of the table that policies are chosen from. Strings are static. */
typedef struct wnw_policy_choice {
    uint32_t struct_size;
    const char *recipe; /* for wnw_policy_parse */
    const char *when;   /* where the row holds, unless one before it does */
    const char *why;    /* one sentence of at most 20 words */
    /* links to what was measured, with blanks between; "none" where nothing was */
    const char *evidence;
    /* longer prompts take the same row up to this length, INT32_MAX: all do; 0: no prompt was asked for */
    int32_t until_tokens;
    /* the fact that decides, in a few words: "policy: X (the fact)" */
    const char *reason;
    const char *recipe_known; /* what `recipe` is where the question is known; may be the same */
} wnw_policy_choice;

WNW_DEFAULT(wnw_policy_choice, wnw_policy_choice_default)

/* Fills *out with the first row of the table that holds for the facts; one always does, and its recipe works in their
 * phases with their profiles. The type of the cache is not asked, because no number says that it matters. A program that
 * learns a prompt's length only once it was read asks wnw_automatic_each. E_ARG: a pointer is NULL, a struct_size is not set.
 * E_RANGE: a phase that is none, or a number that is negative, not a number, or a share above 1. */
WNW_API int wnw_policy_choose(wnw_policy_choice *out, const wnw_policy_facts *facts);
/* Tokens of a chunk where "auto" reads such a prompt in chunks by itself, else 0: it is long, the model has head budgets that were measured
 * for the size, and f->phase is END. The policy is then chosen with the phase CHUNK. */
WNW_API int32_t wnw_policy_chunk(const wnw_policy_facts *facts);
/* Fills *out with row i of the table. false past the end, and where out is NULL or its struct_size is not set. */
WNW_API bool wnw_policy_rule(int32_t i, wnw_policy_choice *out);

/* Fills *out with what is known of a run of m: its phase and `every`, its profile, whether its prompt has a question and that is
 * compressed, and the length of the prompt; not `kept`, which depends on the size, and on the length where the run has none. E_ARG: a
 * pointer is NULL, or a struct_size is not set. */
WNW_API int wnw_policy_facts_of(wnw_policy_facts *out, const wnw_model *m, const wnw_run *run);
/* Adds what p (NULL = nothing) holds to the facts: its kinds, the smallest size of its shares, and what gates on hidden states were
 * learned from. */
WNW_API void wnw_policy_facts_add(wnw_policy_facts *facts, const wnw_profile *p);
/* As wnw_policy_choose, for a quality above 0 and below 1 that is to be kept in place of a size: of the scorers whose losses p
 * has (NULL: none, and `replay` is chosen), and that can work by the facts, the recipe of the one with which fewest entries stay,
 * up to which length too. The caller adds the head budget, "+quality:q=Q". E_RANGE: the quality is none. */
WNW_API int wnw_policy_choose_quality(wnw_policy_choice *out, const wnw_policy_facts *facts,
                                      const wnw_profile *p, double quality);

/* "auto" for programs that learn a prompt's length only once it was read, as servers do. */
typedef struct wnw_automatic {
    uint32_t struct_size;
    const char *recipe; /* "auto", or "auto+quality:q=Q" for a quality in place of a size */
    /* of all prompts, but for was_read, n_tokens and kept; NULL = nothing is known */
    const wnw_policy_facts *facts;
    const wnw_profile *profile; /* what a quality is chosen by; NULL = none */
    wnw_size size;
    int32_t n_most; /* tokens that a prompt has at most; 0 = not known */
} wnw_automatic;
WNW_DEFAULT(wnw_automatic, wnw_automatic_default)

/* Whether a recipe (NULL: no) is one that is chosen so, with a quality above 0 and below 1; *quality (may be NULL) becomes that, else 0. */
WNW_API bool wnw_automatic_is(const char *recipe, double *quality);
/* Writes the recipe for a prompt of n_tokens, 1 or more, to *recipe, which is released with wnw_free. was_read: what was observed while it
 * was read is not there. Errors: those of wnw_policy_choose and wnw_policy_choose_quality; E_ARG also where a->recipe is another one. */
WNW_API int wnw_automatic_choose(char **recipe, const wnw_automatic *a, int32_t n_tokens, bool was_read);
/* As wnw_policy_chunk for a prompt of n_tokens: 0 also where a quality is asked for, or *a is not as wnw_automatic_choose takes it. */
WNW_API int32_t wnw_automatic_chunk(const wnw_automatic *a, int32_t n_tokens);
/* A recipe that may be chosen, and its row, which says nothing of the quality; both only within the call. Returns WNW_OK, or what ends it. */
typedef int wnw_automatic_what(const char *recipe, const wnw_policy_choice *row, void *user);
/* Calls what for the recipes of prompts of 1 to a->n_most tokens, shortest first: what they need is to be observed while a prompt is read.
 * Errors: as above, and what `what` returned. */
WNW_API int wnw_automatic_each(const wnw_automatic *a, wnw_automatic_what *what, void *user);

/* ---- Which tokens of a timeline are compressed next, and to what: numbers alone ---- */

/* New tokens of a prompt that make a sequence be compressed, and the fewest of a chunk. */
enum { WNW_TURNS_LEAST_NEW = 128 };

/* What a ratio of wnw_turns counts. */
typedef enum wnw_turns_ratio {
    WNW_TURNS_OF_REST, /* the tokens of a part */
    WNW_TURNS_OF_ALL, /* the header, too, unless a part begins after judged tokens: it becomes the part's own ratio */
    WNW_TURNS_OF_READ, /* all tokens, also those whose entries earlier chunks have dropped: it becomes a budget */
} wnw_turns_ratio;

/* What a timeline has read, and what its policy may do. A timeline is a sequence of libllama, or a session. Tokens are counted from its
 * first. No number is negative, infinite or NaN. */
typedef struct wnw_turns {
    uint32_t struct_size;
    int32_t n_header;    /* first tokens, which stay whole */
    int32_t n;           /* tokens that were read, those of the header included */
    int32_t n_judged;    /* first tokens that a compression has judged; 0 = none */
    int32_t at_prompt;   /* the first token of the last prompt; 0 where that is not known */
    bool compressed;     /* entries of judged tokens are gone */
    bool keeps_previous; /* entries that a compression has left stay as they are */
    bool all_queries;    /* the policy needs every query, and only those of the last prompt are known */
    bool rounds_up;      /* a budget with slack is rounded up, as for sequences; else down, as for sessions */
    bool more_follows;   /* further chunks of the prompt will be read */
    double slack;        /* this number of times the size stays while more follows; 1 or less: the size */
    wnw_size size;       /* what is to stay */
    int32_t n_counted;   /* last tokens of the header that a budget counts, and a ratio that is not OF_REST */
    int32_t n_least;     /* entries that a budget leaves in addition to the header, however small it is */
    wnw_turns_ratio ratio;
} wnw_turns;
WNW_DEFAULT(wnw_turns, wnw_turns_default)

/* Tokens from .. to - 1, which are compressed together. The header is in front of them, and the size is of these tokens alone. */
typedef struct wnw_turns_part {
    int32_t from, to;
    wnw_size size;
    bool fallback; /* by a policy that needs nothing but keys, as queries of these tokens are gone */
} wnw_turns_part;

/* Writes what is compressed next, in this order, for wnw_bridge_compress_cells. Returns the number of parts, 0 to 2. A policy with
 * `all_queries` has two parts where the last prompt is not all that is new; of a budget each leaves an entry at least. 0 also where a pointer
 * is NULL, struct_size is not set or a number is none of the above.
 * Thread-safe, as the next two are. */
WNW_API int32_t wnw_turns_parts(wnw_turns_part out[2], const wnw_turns *turns);
/* The first token of the last prompt that no compression has judged and that is after the header: what a sample may repeat
 * (wnw_sample_places). May be `n` or more where there is none. Errors as above. */
WNW_API int32_t wnw_turns_first_new(const wnw_turns *turns);
/* Whether n_new tokens of prompts that no compression has judged are enough for one: where the prompt has ended WNW_TURNS_LEAST_NEW,
 * else those of a chunk. chunk 0: nothing is compressed before a prompt has ended. */
WNW_API bool wnw_turns_is_due(int32_t n_new, int32_t chunk, bool ended);

/* ---- Answers by something else than a session ---- */

/* What reads tokens for wnw_generate_by. Its functions get `user`. */
typedef struct wnw_decoder {
    uint32_t struct_size;
    const wnw_model *model; /* for the texts of tokens; its weights are not used */
    const float *(*logits)(
        void *
            user); /* of the last token that was read, one for each token of the model; NULL: there are none */
    int (*decode)(int32_t token,
                  void *user); /* reads one more token; returns a status, whose message wnw_last_error has */
    int32_t (*n_left)(void *user); /* tokens that can still be read */
    void *user;
} wnw_decoder;
WNW_DEFAULT(wnw_decoder, wnw_decoder_default)

/* wnw_generate with a decoder in place of a session. E_ARG: a function or the model is NULL. */
WNW_API int wnw_generate_by(wnw_generated *out, const wnw_decoder *by, wnw_sampler *sp,
                            const wnw_generate_params *params);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_TOOLS_H */
