/* SPDX-License-Identifier: MIT */
/*
 * winnow for authors of methods: what a policy is made of, and how a program adds a part of its own.
 *
 * A program that only runs models needs winnow.h alone. This header adds
 *   - parts and their options, what they may observe, and the descriptors of all kinds of part,
 *   - registries, with which recipes name parts of the program,
 *   - the catalogue of all presets and parts, for help and documentation,
 *   - what evicting entries does to the output of one head, for comparing selections.
 *
 * docs/research/new-method.md and examples/own_method.c show how to write a part. The conventions are those of
 * winnow.h.
 */
#ifndef WINNOW_METHOD_H
#define WINNOW_METHOD_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parts: what a policy is made of ---- */

typedef enum wnw_part_kind {
    WNW_PART_SCORER,
    WNW_PART_AGGREGATION, /* from scores of query heads to scores of KV heads */
    WNW_PART_LAYER_BUDGET,
    WNW_PART_HEAD_BUDGET,
    WNW_PART_SELECTOR,
    WNW_PART_POSITIONS, /* of the entries that are kept */
    WNW_PART_CONTENTS   /* of the entries that are kept: as they are, or merged, pruned, fitted */
} wnw_part_kind;

typedef enum wnw_option_type {
    WNW_OPT_INT,
    WNW_OPT_REAL,
    WNW_OPT_BOOL,
    WNW_OPT_ENUM,
    WNW_OPT_LIST /* numbers with "/" between them, one at least */
} wnw_option_type;

/* The most numbers of a LIST option. */
#define WNW_LIST_MAX 128

/* The value of a LIST option: x[0] .. x[n - 1]. */
typedef struct wnw_list {
    int32_t n;
    double x[WNW_LIST_MAX];
} wnw_list;

/* One typed option of a part. The framework parses it, checks the range and stores it at `offset` of the options
 * struct: int32_t for INT, BOOL and ENUM (index into choices), double for REAL, wnw_list for LIST. The default of a
 * LIST is one number. */
typedef struct wnw_option {
    const char *name; /* NULL ends a table */
    const char *help;
    wnw_option_type type;
    size_t offset;
    double def, min, max;
    const char *const *choices; /* ENUM: NULL-terminated */
} wnw_option;

/* Observations a part may ask for. */
enum {
    WNW_NEED_WINDOW_ATTN = 1u << 0, /* attention of the last `window` queries */
    WNW_NEED_KEYS = 1u << 1,        /* cached keys, after RoPE */
    WNW_NEED_VALUES = 1u << 2,      /* cached values */
    WNW_NEED_ATTN_SUM = 1u << 3,    /* sum of the attention of queries since an entry was read */
    WNW_NEED_ATTN_MAX = 1u << 4,    /* maximum of the same attention; only parts of programs ask for it */
    WNW_NEED_PROJ_NORM = 1u << 5,   /* norms of the values after the output projection */
    WNW_NEED_QUERY_STATS = 1u << 6, /* mean and covariance of the queries before RoPE */
    WNW_NEED_QUERIES = 1u << 7, /* every prompt query, after RoPE: as large as the prompt's hidden states */
    WNW_NEED_QUERIES_F16 = 1u << 14, /* the same rounded to f16, where no other part wants them as they are */
    WNW_NEED_EVERY_QUERY = WNW_NEED_QUERIES | WNW_NEED_QUERIES_F16, /* either */
    WNW_NEED_PERPLEXITY = 1u << 8,                                  /* of the last `window` prompt tokens */
    WNW_NEED_SECOND_PASS = 1u << 9, /* attention of tokens that are fed once more, see `second_pass` */
    WNW_NEED_PROFILE = 1u << 10,    /* calibration results of the kinds in `profiles` */
    WNW_NEED_ROPE = 1u << 11, /* how keys turn with their positions: `rope_theta` and what goes with it */
    WNW_NEED_INPUT_GATE = 1u << 12, /* what gates on hidden states said of tokens when they were read */
    WNW_NEED_LOOKAHEAD = 1u << 13,  /* queries of `lookahead` tokens that a compressed copy generates */
    WNW_NEED_TOKEN_TEXT = 1u << 15, /* the text of every token read */
    WNW_NEED_NOTES = 1u << 16,      /* what the selector noted of entries at the last compression */
    /* The numbers that the cache keeps with an entry from when it is read: of the attention to it, and all. They are
     * noted only while rules or a policy that look at them are in force. */
    WNW_NEED_ATTN_NUMBERS = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX,
    WNW_NEED_NUMBERS = WNW_NEED_ATTN_NUMBERS | WNW_NEED_INPUT_GATE,
};

/* Which tokens a second pass feeds. */
typedef enum wnw_second_pass {
    WNW_PASS_CONTEXT, /* the tokens read, once more, after themselves (KVCompose, task-agnostic) */
    WNW_PASS_TASK,    /* each of the tasks of wnw_run, after the tokens read */
    /* An instruction to repeat, then the text after the chat header, chunk by chunk (KVzip); the softmax is
     * over the header, the chunk and the tokens fed. Where no header is known, the text's first 4 tokens take
     * its place. */
    WNW_PASS_REPEAT,
    WNW_PASS_REPEAT_SINKS, /* REPEAT with the first 4 tokens in place of any header (kvpress' KVzip) */
    WNW_PASS_REPEAT_ALL,   /* REPEAT with the header as text like any other */
    /* CONTEXT, and after that second copy each of the tasks, except a task with which the tokens read
     * already end (KVCompose, task-aware). */
    WNW_PASS_BOTH,
    /* A sample of the tokens read since the last compression (wnw_sample_places, by `sample`), fed as one sequence. The softmax is
     * over everything. */
    WNW_PASS_SAMPLE,
    /* Added to a REPEAT: the attention of each query is divided by the length of what its layer's attention reads of the
     * token, the hidden state after the norm in front of it (KVzip+). */
    WNW_PASS_BY_INPUT = 1 << 4,
} wnw_second_pass;

/* How much a SAMPLE repeats: one of `every` tokens (0: none), but no more than `most`, and then at least `least`; in runs of
 * `place` tokens or some more. */
typedef struct wnw_sample_size {
    int32_t least, most, every, place;
} wnw_sample_size;

/* Tokens before each place of a sample, which lead to it; places of a sample at most. */
#define WNW_SAMPLE_HINT   8
#define WNW_SAMPLE_PLACES 16

/* Tokens lead .. to - 1 of a text. Those from `from` on are the sample; those before lead to it. */
typedef struct wnw_sample_place {
    int32_t lead, from, to;
} wnw_sample_place;

/* Where a sample of tokens from .. to - 1 is: in the middle of each of as many slices of them as it has places, fewer where slices would
 * be too short for what leads to a place. Returns their number, 0 where there are no tokens or for NULL, and place[] in ascending order. */
WNW_API int32_t wnw_sample_places(const wnw_sample_size *size, int32_t from, int32_t to,
                                  wnw_sample_place place[WNW_SAMPLE_PLACES]);
/* How many tokens are fed of n: all places with what leads to them. */
WNW_API int32_t wnw_sample_fed(const wnw_sample_size *size, int32_t n);

/* Norms of a value v after the output projection W_O of query head h, averaged over the group. */
typedef enum wnw_proj_norm {
    WNW_PROJ_L1,     /* mean of ||v W_O^h||_1: one output projection per entry and query head */
    WNW_PROJ_L2,     /* root mean square of ||v W_O^h||_2, by a d x d matrix: about a hundredth of the work */
    WNW_PROJ_SKETCH, /* L1 over a fixed random sample of the output columns, scaled up */
} wnw_proj_norm;
#define WNW_N_PROJ_NORMS 3

typedef struct wnw_needs {
    uint32_t struct_size; /* callers of wnw_policy_get_needs set it; a part's needs() leaves it alone */
    uint32_t flags;
    int32_t window;      /* queries observed at the end of the prompt; the largest asked for wins */
    int32_t skip;        /* QUERY_STATS: first positions that are left out; policies of one run must agree */
    int32_t second_pass; /* SECOND_PASS: wnw_second_pass; policies that are planned at once must agree */
    uint32_t profiles;   /* PROFILE: bit set of the wnw_profile_kind that the part cannot work without */
    uint32_t profiles_optional; /* PROFILE: bit set of kinds that improve the part; where one is missing
                                   it works with neutral values and the report has a warning */
    int32_t lookahead;          /* LOOKAHEAD: tokens to generate */
    wnw_sample_size sample;     /* SECOND_PASS by SAMPLE; policies that are planned at once must agree */
} wnw_needs;

WNW_DEFAULT(wnw_needs, wnw_needs_default)

/* Whether one second pass serves both, where both ask for one. NULL: false. */
WNW_API bool wnw_second_passes_agree(const wnw_needs *a, const wnw_needs *b);

/* The observations of one layer. Arrays are float32 and borrowed until the part's function returns. Entries are cache
 * entries in ascending position; with a cache that was never compressed entry i is position i. Rows are rectangular:
 * head ih has n_entry[ih] <= n entries, the rest is padding whose score is ignored. Pointers are NULL unless asked for.
 * */
typedef struct wnw_observation wnw_observation;
struct wnw_observation {
    int32_t il, n_layer; /* layer, and how many the model has */
    int32_t n_head,
        n_head_kv;          /* query heads; KV heads. Query head h reads KV head h / (n_head / n_head_kv) */
    int32_t n_embd_head;    /* d */
    int32_t n;              /* entries per row: of the longest head, padding included */
    int32_t n_past;         /* tokens read so far (the next token's position) */
    const int32_t *n_entry; /* [n_head_kv] */
    const int32_t *pos; /* [n_head_kv][n], positions in the text; -1 in padding. A token has the same position
                           in every head. After +rerotate they are the new positions, and neither holds */
    double budget;      /* entries per KV head asked for, on average over the layers, before rounding;
                           n where no size is given */
    int32_t n_settled;  /* first entries of every head that a recursive policy has settled before */
    int32_t n_prefix;   /* first tokens read that the chat template wrote; 0 = none, or not known */
    int32_t n_question; /* last tokens read that are the question; 0 = not known */
    float attn_scale;   /* logit = attn_scale x query . key */

    int32_t n_window; /* queries in window_attn: the window asked for, or fewer when the prompt is shorter */
    /* [n_head][n_window][n]: softmax over all visible entries, 0 where causality forbids. Query row w belongs
     * to position n_past - n_window + w. */
    const float *window_attn;
    const float *window_queries; /* [n_head][n_window][d] after RoPE: the queries of window_attn */
    /* Keys / values of KV head ih, [n][d]. Borrowed until the same function is called for another head. */
    const float *(*keys)(const wnw_observation *obs, int32_t ih);
    const float *(*values)(const wnw_observation *obs, int32_t ih);
    /* Keys / values of entries first .. first + count - 1 only, [count][d]; the memory is that of keys and
     * values. */
    const float *(*key_rows)(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count);
    const float *(*value_rows)(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count);

    /* The same of all KV heads, [n_head_kv][n][d]. Borrowed until the observation ends. NULL where memory runs out, with the error set. */
    const float *(*all_keys)(const wnw_observation *obs);
    const float *(*all_values)(const wnw_observation *obs);

    /* [n_head][n]: attention probability that query head h gave to an entry, summed (or its maximum) over the
     * queries of all tokens since the entry was read, its own included. Entries present when a query was read
     * share its softmax. */
    const float *attn_sum, *attn_max;
    /* [n_head][n]: sum and maximum over the n_pass2 queries of the second pass. Rows are not renormalised. */
    const float *pass2_sum, *pass2_max;
    int32_t n_pass2;
    /* [n_pass2_places] the positions that the pass was to look for; what entries at others have says nothing. */
    const wnw_sample_place *pass2_places;
    int32_t n_pass2_places;

    /* Norms of the values after the output projection, [n_head_kv][n]; NULL where memory runs out, with the
     * error set. They are stored with the entries, so that each is computed once. They leave out a bias of
     * the projection and norm layers after it. */
    const float *(*proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);
    /* The same for every query head by itself, [n_head][n]: the norm after its own slice of the projection.
     * Borrowed until the observation ends. NULL after a failure, with the error set. */
    const float *(*head_proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);

    /* Queries before RoPE (after the query norm, if the model has one) of positions >= needs.skip: mean
     * [n_head][d], covariance [n_head][d][d] divided by their number n_query_stats. They cover all tokens
     * read since the policy was declared, decoded ones too; zeros where there are none. */
    const float *query_mean, *query_cov;
    int64_t n_query_stats;
    /* [n_queries][n_head][d] after RoPE, of positions n_past - n_queries .. n_past - 1. With QUERIES_F16 alone they may have
     * been rounded. */
    const float *queries;
    int32_t n_queries;
    /* [n_head_kv][n] what the gates of the profile gave an entry's token when it was read. */
    const float *input_score;
    /* [n_lookahead][n_head][d] after RoPE, of positions n_past .. n_past + n_lookahead - 1: tokens that follow the prompt where it
     * goes on, most likely first, with a cache compressed to the size asked for by SnapKV. Fewer than asked for where the
     * text or the context ends; NULL where none is. */
    const float *lookahead_queries;
    int32_t n_lookahead;

    /* [n_past] the text of the token at each position: not always whole characters, "<|im_end|>" for a control token, ""
     * for an id without a text. NULL where heads hold different tokens at that position (+rerotate). */
    const char *const *token_text;

    /* [n_head_kv][n] what the policy's selector noted of an entry at the last compression (wnw_select_problem.note); not a
     * number = nothing, as for tokens that came later. Notes end with rules or policies whose selectors ask for none. */
    const float *note;

    /* RoPE: the first n_rot elements of a head turn in pairs by position x rope_theta[pair], [n_rot / 2].
     * Pair i is (i, i + n_rot / 2) with rope_neox, else (2 i, 2 i + 1). */
    const float *rope_theta;
    int32_t n_rot;
    bool rope_neox;

    /* [n_head]: scores of query heads that are false here will not be used. NULL = all are. */
    const bool *query_head_used;

    const double *gathered;     /* numbers that the scorer gathered over all layers; NULL = none */
    const wnw_profile *profile; /* NULL = none */
    double perplexity;          /* of the last tokens; 0 unless asked for */
    /* [n_head_kv][n]: what attention adds to the logits of an entry, after a content rule has written it; 0 in
     * padding. NULL = no entry has any. Window attention and sums have it in them. */
    const float *bias;
    int32_t n_ctx_train; /* positions that the model was trained for; 0 = not known */
    /* Calls work(i, user) once for every i of 0 .. n - 1, on all threads of the session, and returns when all are
     * done. Results must not depend on the order. `work` calls neither this nor the functions above. NULL = there
     * are no threads. */
    void (*each)(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user), void *user);
    void *source; /* private to the code that filled the struct */
};

/* What many scorers take of an observation, computed on the session's threads: the mean of window_attn over its queries, out[n_head][n], and the
 * L2 norms of the keys, out[n_head_kv][n]. Both are 0 in padding. E_ARG: it was not observed. */
WNW_API int wnw_observation_window_mean(const wnw_observation *obs, float *out);
WNW_API int wnw_observation_key_norms(const wnw_observation *obs, float *out);

/* ---- Parts: one of each kind makes a policy ---- */

/* Sizes of a model and its cache that are known before any layer is observed. */
typedef struct wnw_shape {
    int32_t n_layer, n_head, n_head_kv, n_embd_head;
    int32_t n_past; /* tokens read: one more than the last position */
} wnw_shape;

/* Numbers that a part gathers over all layers before it decides: numbers[size], zero at first. A policy with such a
 * part cannot work layer by layer. For scorers every layer is visited before any is scored; for layer budgets, head
 * budgets and selectors a layer is visited when it is scored; other kinds do not gather. */
typedef struct wnw_gather {
    /* Returns how many numbers the part gathers; 0 = none with these options. */
    size_t (*size)(const void *opts, const wnw_shape *shape);
    /* Sets the observations that `visit` needs of a layer. NULL = none. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Adds the share of one layer (obs->il) to numbers. Returns WNW_OK or an error status. */
    int (*visit)(const void *opts, const wnw_observation *obs, double *numbers);
} wnw_gather;

/* The facts about a head on which its protected entries may depend. */
typedef struct wnw_keep_problem {
    int32_t n;        /* entries of the head */
    int32_t budget;   /* average entries per head asked for; without a size the entries of the longest head */
    bool sized;       /* a size was asked for */
    int32_t n_prefix; /* first tokens read that the chat template wrote; 0 = none, or not known */
    int32_t n_here;   /* number of those tokens that the head still holds, as its first entries */
    int32_t n_left;   /* first entries of the head that the last compression has left; 0 = there was none */
} wnw_keep_problem;

/* Entries that are kept regardless of their score. */
typedef struct wnw_protected {
    int32_t n_first; /* sinks */
    int32_t n_last;  /* most recent */
} wnw_protected;

/* Facts that several parts share. The first words name the kinds of part that may have a flag; others are refused. What a single part
 * says of itself is a member of its kind's descriptor, such as `slides` of head budgets. */
enum {
    /* Any kind but positions: its scores or numbers belong to the end of a prompt, so that it works neither
     * by chunk nor while decoding. */
    WNW_FLAG_PROMPT_ONLY = 1u << 0,
    /* Any kind but positions: it compares entries of one position between the heads of a layer, or between
     * layers, so that they must be of the same token. After +rerotate, heads that hold different tokens have
     * different tokens at the same position; such a cache is refused then. */
    WNW_FLAG_MATCHES_HEADS = 1u << 1,
    WNW_FLAG_MATCHES_LAYERS = 1u << 2,
    /* Scorer: it scores query heads, score[n_head][n], and the policy's head aggregation makes scores of KV heads of
     * them. Row h holds scores of the entries of KV head h / (n_head / n_head_kv). Aggregation: it works on scores of
     * query heads only. Selector: it reads the scores of query heads too, and so goes only with scorers that have
     * them and aggregations of whole groups. */
    WNW_FLAG_QUERY_HEADS = 1u << 3,
    /* Scorer: scores are attention probabilities or estimates of them, not negative. Selector: it uses scores
     * as attention probabilities, and goes only with such scorers. */
    WNW_FLAG_ATTENTION = 1u << 4,
    /* Scorer: where all heads keep the same number of entries they keep the same ones (UNIFORM: in all
     * layers; ONE_LIST: in a layer). Aggregation, ONE_LIST: every KV head gets the same score for the same
     * token. */
    WNW_FLAG_UNIFORM = 1u << 6,
    WNW_FLAG_ONE_LIST = 1u << 7,
    /* Scorer: a budget that cannot hold the protected entries, or leaves no other entry to choose, is not
     * refused: the number of protected entries shrinks as under a ratio, with a warning. */
    WNW_FLAG_SHRINKS = 1u << 8,
    /* Scorer: row h of its scores depends on the window's attention of query head h alone, so that the
     * attention of heads which the aggregation leaves out need not be computed. */
    WNW_FLAG_WINDOW_BY_HEAD = 1u << 10,
    /* Layer budget, head budget: layers, or the heads of a layer, differ in length. */
    WNW_FLAG_RAGGED = 1u << 11,
    /* Layer budget: counts depend on every layer's scores. allocate is called once all layers are scored. */
    WNW_FLAG_ALL_LAYERS = 1u << 12,
    /* Head budget: it shares out H times the average over the H heads of a layer, or of the model with
     * allocate_model, or all their entries if they have fewer. Layer budget: it shares out a sum over the layers; what a layer is too
     * short for, because it was compressed before, goes to the others in proportion to their budgets. */
    WNW_FLAG_COMPETES = 1u << 14,
    /* Head budget: where no size is given its counts follow from its own rule. Every budget in its problem is
     * then the number of all entries, and no layer budget is asked. */
    WNW_FLAG_OWN_SIZE = 1u << 16,
    /* Head budget with allocate_model: its counts follow from the sizes of the heads, their protected entries
     * and the profile, not from scores. It is called before any layer is scored, with p->score NULL, and so
     * works layer by layer. It does not gather. */
    WNW_FLAG_BLIND = 1u << 21,
    /* Scorer: its scores say what a second reading of the text would look for, and so compare between all heads. Head
     * budget: it takes scores for that, and goes only with such scorers. */
    WNW_FLAG_SECOND_LOOK = 1u << 22,
};

/* The common members of all parts: the first member of every descriptor. A function may be NULL where the part does not
 * need it. Parts are pure: the same input gives the same output, they do not allocate (scratch is given) and have no
 * state, and several threads may call them at once. A function with a status returns WNW_OK or an error; the library
 * words the message. Entries are indices into a head's list of cached entries, in ascending position. */
typedef struct wnw_part {
    uint32_t struct_size; /* of the whole descriptor; WNW_SCORER_INIT etc. set it, and the kind */
    wnw_part_kind kind;
    const char *name;  /* [a-z0-9_-]+, at most 64 */
    const char *about; /* one sentence; NULL = "" */
    const char *paper; /* title or arXiv id; NULL = "" */
    /* for documentation, in Markdown: the formulas in short with the paper's letters, what
     * differs from the paper and from released code, the cost. Paragraphs are separated
     * by "\n\n". NULL = "" */
    const char *details;
    const wnw_option *options;              /* NULL, or a table that ends with name == NULL */
    size_t options_size;                    /* of the struct it fills */
    uint32_t flags;                         /* WNW_FLAG_ */
    uint32_t (*flags_of)(const void *opts); /* more flags, which depend on the options */
    /* Contradictions between options that single ranges cannot express: WNW_OK or E_ARG. */
    int (*check)(const void *opts);
    /* Sets the observations that the part needs of a layer, and of the prompt (perplexity, profile). */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Protects entries. *out holds the counts that other parts protect; the function may raise them. */
    void (*keep)(const void *opts, const wnw_keep_problem *p, wnw_protected *out);
    const wnw_gather *gather;
} wnw_part;

/* How a real-valued count becomes whole. A layer budget with an enum option "rounding" of the choices "exact", "trunc"
 * sets it for every count of its policy; it is exact otherwise. */
typedef enum wnw_rounding {
    WNW_ROUND_EXACT, /* floor(x + 1e-6): 1000 * (1 - 0.9) is 100 */
    WNW_ROUND_TRUNC, /* floor(x), as kvpress does: 1000 * (1 - 0.9) is 99 */
} wnw_rounding;

/* Consecutive blocks of `lag` entries after `sink` protected ones. All complete blocks but the last are thinned. */
typedef struct wnw_blocks {
    int32_t sink, lag; /* >= 0; >= 1 */
} wnw_blocks;

/* Blocks that a scorer's scores belong to, and that a selector may work on (by_block). */
typedef struct wnw_block_rule {
    void (*of)(const void *opts, wnw_blocks *out);
    /* Changes opts so that the protected ones of n entries and one entry of every thinned block fit into n_keep.
     * false, or a NULL function: that is not possible; a recursive policy then refuses the size, and for others
     * the rule of the library applies. */
    bool (*fit)(void *opts, int32_t n, int32_t n_keep);
} wnw_block_rule;

/* A scorer: observations of one layer -> score[n_head_kv][n], or score[n_head][n] with WNW_FLAG_QUERY_HEADS, higher =
 * keep. */
typedef struct wnw_scorer {
    wnw_part part;
    /* Name of the head aggregation where the recipe names none. NULL = group_mean for scores of query heads,
     * else direct. */
    const char *aggregation;
    /* Returns the float elements of scratch that `score` needs for this observation. NULL = 0. */
    size_t (*scratch)(const void *opts, const wnw_observation *obs);
    /* Fills score[n_head_kv][n], or [n_head][n]. */
    int (*score)(const void *opts, const wnw_observation *obs, float *score, float *scratch);
    /* A last step after the head aggregation, in place: score[n_row][obs->n] of all KV heads, or of all
     * query heads for a selector that reads those. scratch[obs->n]. NULL = none. */
    void (*finish)(const void *opts, const wnw_observation *obs, int32_t n_row, float *score, float *scratch);
    /* The blocks inside which scores can be compared. NULL = scores of all entries can be. Entries before
     * n_settled are settled and count as sinks of the blocks. */
    const wnw_block_rule *blocks;
    /* Whether the method leaves layer il whole; such layers are not counted in a size. NULL = none. */
    bool (*skips)(const void *opts, int32_t il);
    /* Whether it takes n_past - position for the number of queries that an entry has seen, which is wrong for entries
     * with new positions. NULL = no. */
    bool (*counts_age)(const void *opts);
} wnw_scorer;
#define WNW_SCORER_INIT WNW_INIT(wnw_scorer), .kind = WNW_PART_SCORER

/* Head aggregation: scores of a layer's heads -> score[n_head_kv][n]. */
typedef struct wnw_aggregation {
    wnw_part part;
    /* Chooses the query heads that count: used[obs->n_head], all true at first. It is called before the layer
     * is observed: obs has only il, the shapes and the profile. NULL = all. */
    int (*choose)(const void *opts, const wnw_observation *obs, bool *used);
    size_t (*scratch)(const void *opts, const wnw_observation *obs); /* float elements. NULL = 0 */
    /* head_score[n_row][obs->n], n_row = obs->n_head or obs->n_head_kv -> score[obs->n_head_kv][obs->n]. The
     * two do not overlap. NULL = the scorer's scores are used as they are. */
    void (*aggregate)(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch);
} wnw_aggregation;
#define WNW_AGGREGATION_INIT WNW_INIT(wnw_aggregation), .kind = WNW_PART_AGGREGATION

/* The model's layers and the size that a layer budget shares out between them. Arrays are borrowed. */
typedef struct wnw_layer_problem {
    int32_t n_layer;     /* layers that take part */
    int32_t n;           /* entries of the longest head */
    int32_t n_protected; /* number of those entries that are kept regardless of their score */
    int32_t budget;      /* average entries per head to reach; n_protected <= budget < n */
    double mean;         /* budget before rounding */
    double ratio; /* fraction to remove, where all heads hold n entries and a ratio was asked for; else 0 */
    wnw_rounding rounding;
    const int32_t *il;     /* [n_layer] their numbers in the model */
    int32_t n_layer_model; /* layers of the model */
    int32_t n_head, n_head_kv;
    const wnw_profile *profile;
    double perplexity;

    /* The following pointers are set for head budgets, and for layer budgets once all layers are scored; NULL
     * else. */
    const float *const *score; /* [n_layer][n_head_kv][row[i]]; NULL with WNW_FLAG_BLIND */
    const int32_t *row;        /* [n_layer] entries per row of score, padding included */
    const int32_t *n_entry;    /* [n_layer][n_head_kv] */
    const wnw_protected *prot; /* [n_layer][n_head_kv], never more than n_entry or budget */
    const double *gathered;    /* numbers that the called part gathered */
    float *scratch;            /* [sum of n_head_kv * row] */
    double *work;              /* [n_layer] scratch */

    const char *scorer; /* name of the policy's scorer */
    int32_t n_past;     /* tokens read: entries of a head that has lost none */
} wnw_layer_problem;

/* Layer budget: one count for the whole model -> one count per layer. */
typedef struct wnw_layer_budget {
    wnw_part part;
    /* Fills n_keep[n_layer] with the average entries per head of each layer, 0..n; a number outside fails the
     * plan. It may add a sentence to warning[256] with wnw_part_warn. */
    int (*allocate)(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning);
    /* Whether a size counts only the chosen entries; the scorer's protected entries come on top then. NULL = no. */
    bool (*protected_apart)(const void *opts);
} wnw_layer_budget;
#define WNW_LAYER_BUDGET_INIT WNW_INIT(wnw_layer_budget), .kind = WNW_PART_LAYER_BUDGET

/* One layer's heads and the count that a head budget shares out between them. Arrays are borrowed. */
typedef struct wnw_head_problem {
    int32_t n_head_kv;
    int32_t n;                 /* entries per row of score, padding included */
    const int32_t *n_entry;    /* [n_head_kv] */
    const float *score;        /* [n_head_kv][n] */
    const wnw_protected *prot; /* [n_head_kv], never more than budget or n_entry */
    int32_t budget;            /* average entries over the heads */
    wnw_rounding rounding;
    const double *gathered;
} wnw_head_problem;

/* Head budget: count of a layer and its scores -> one count per KV head. Exactly one of the two functions is set. */
typedef struct wnw_head_budget {
    wnw_part part;
    /* Fills n_keep[n_head_kv], protected entries <= n_keep <= n_entry; scratch[n_head_kv * n]. It may raise
     * n_safe[n_head_kv], zero at first: the number of a head's best scores that are kept regardless of the
     * selector does, at most n_keep minus the protected entries. */
    int (*allocate)(const void *opts, const wnw_head_problem *p, int32_t *n_keep, int32_t *n_safe,
                    float *scratch);
    /* Takes the place of allocate and of the layer budget, which must be `uniform`: fills the counts of all
     * layers and heads at once, n_keep[p->n_layer][n_head_kv], 0..n_entry.
     * scratch[n_layer * n_head_kv * n]. */
    int (*allocate_model)(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning);
    /* Whether, under the rules of wnw_session_begin, a head that a prompt's compression has cut holds its count while
     * decoding: the oldest entries after the protected first ones go. All other heads grow. NULL = no. */
    bool (*slides)(const void *opts);
} wnw_head_budget;
#define WNW_HEAD_BUDGET_INIT WNW_INIT(wnw_head_budget), .kind = WNW_PART_HEAD_BUDGET

/* One head's entries, from which a selector chooses. */
typedef struct wnw_select_problem {
    const float *score;     /* [n] of one head */
    int32_t n, n_keep;      /* 0 <= n_keep <= n */
    wnw_protected prot;     /* n_first + n_last <= n_keep */
    wnw_blocks blocks;      /* of the scorer; lag 0 = none */
    int32_t n_settled;      /* settled entries before the blocks */
    int32_t n_safe;         /* number of best scores that are kept in any case, <= n_keep - protected */
    int32_t ih;             /* this head */
    int32_t n_head_kv, row; /* all heads of the layer: layer_score[n_head_kv][row], n_entry[n_head_kv] */
    const float *layer_score;
    const float *head_score; /* [obs->n_head][row] with WNW_FLAG_QUERY_HEADS, NULL else */
    const int32_t *n_entry;
    wnw_rounding rounding;
    double mean;                /* average size asked for, before rounding; 0 = the policy's own */
    const wnw_observation *obs; /* the observations that `needs` asks for; NULL if none */
    const double *gathered;
    /* [n] for a selector that asks for NOTES, else NULL: what it notes of entries, not a number at first. Notes of entries that stay are
     * kept with them when the plan is applied. */
    float *note;
} wnw_select_problem;

/* Functions of a recursive selector, which settles blocks of entries one after the other, whenever a block is complete,
 * and so has a size of its own.
 *
 * A policy with one (LagKV) drops a block's entries whenever the block is complete, also while
 * decoding; `every` and `target` have no effect. A size decides how many entries stay of blocks that are not settled:
 * of a piece that is read, as many as bring all turns together to the size; of a block that decoding completes, the
 * ratio's share, or as many as a budget has room for. Too few tokens for two blocks stay whole. Every block keeps one
 * entry or more: a budget that never has room for that is refused here, one without room for the first piece before
 * that is read; later turns and decoded tokens exceed a full budget by an entry for each block, and the report
 * (while decoding, the log) says so.
 * */
typedef struct wnw_recursive {
    /* Returns the number of entries to keep of n where no size is given: 0..n. */
    int32_t (*own_size)(const void *opts, const wnw_blocks *blocks, int32_t n, wnw_rounding rounding);
    /* Changes opts so that own_size of n entries is the largest that is at most n_keep, with one entry of every
     * thinned block where even that is more. */
    void (*fit)(void *opts, const wnw_blocks *blocks, int32_t n, int32_t n_keep);
    /* Returns how many of the n_keep entries kept of n are settled: they come before those among which later
     * calls choose again. 0..n_keep. */
    int32_t (*settled)(const void *opts, const wnw_blocks *blocks, int32_t n, int32_t n_keep);
} wnw_recursive;

/* Selector: scores and count of one head -> kept entries. */
typedef struct wnw_selector {
    wnw_part part;
    /* Adds a sentence to `warning` where `budget` entries per head, prot of them protected, leave no choice to the
     * method. NULL = never. */
    void (*advise)(const void *opts, const wnw_protected *prot, int32_t budget, wnw_rounding rounding,
                   char *warning);
    const wnw_recursive *recursive;                 /* NULL = not a recursive selector */
    size_t (*scratch)(const void *opts, int32_t n); /* float elements for n entries. NULL = 0 */
    /* Writes kept entries, ascending, to keep[n] and returns their number. It is n_keep, except for selectors
     * whose unit is not a single entry. Negative = an error status. */
    int32_t (*select)(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch);
    bool by_block; /* it works on a scorer's blocks, with the same count in every head and layer */
} wnw_selector;
#define WNW_SELECTOR_INIT WNW_INIT(wnw_selector), .kind = WNW_PART_SELECTOR

/* Position rule: kept entries -> their positions. It has no functions. */
typedef struct wnw_positions {
    wnw_part part;
    /* Kept entries get the positions 0 .. n - 1 in their order. All heads of all layers must keep the same count. */
    bool rerotates;
} wnw_positions;
#define WNW_POSITIONS_INIT WNW_INIT(wnw_positions), .kind = WNW_PART_POSITIONS

/* A change of values of kept entries (value merging): the value of the dropped entry at position `from` is added
 * `weight` times to n_to consecutive kept entries of the same head. The first one is at position `to`. */
typedef struct wnw_merge {
    int32_t from, to, n_to;
    float weight;
} wnw_merge;

/* One head's entries that stay. Arrays are borrowed. */
typedef struct wnw_contents_problem {
    const wnw_observation *obs; /* the observations that `needs` asks for */
    int32_t ih;                 /* this head */
    const int32_t *keep;        /* [n_keep] entries that stay, ascending */
    int32_t n_keep, n;          /* of n entries */
} wnw_contents_problem;

/* Content rule: entries that stay and entries that go -> merges and pruned channels. These are data of the plan; the
 * cache itself is changed when the plan is applied. */
typedef struct wnw_contents {
    wnw_part part;
    size_t (*scratch)(const void *opts, const wnw_observation *obs); /* float elements. NULL = 0 */
    /* Writes the head's merges to out[n - n_keep] in ascending order of `from`, at most one for each entry
     * that goes, and returns their number. `from` and `to` are entries, not positions. NULL = no merges. */
    int32_t (*merge)(const void *opts, const wnw_contents_problem *p, wnw_merge *out, float *scratch);
    /* Writes the key channels that become 0 in all but the last *n_spared entries to out[n_embd_head],
     * ascending, and returns their number; also where all entries stay. NULL = none. */
    int32_t (*prune)(const void *opts, const wnw_contents_problem *p, int32_t *out, int32_t *n_spared,
                     float *scratch);
    /* Writes new biases and values of the entries that stay. bias[n_keep]: what attention adds to their logits from
     * now on, in place of obs->bias. values[n_keep][d]: what replaces their values. Before the call both hold the
     * present ones. Returns a set of WNW_FIT_, or an error status. NULL = neither. */
    int (*fit)(const void *opts, const wnw_contents_problem *p, float *bias, float *values, float *scratch);
    bool averages; /* a value to which others were added is divided by 1 + the sum of their weights */
} wnw_contents;
/* What `fit` has written. */
enum { WNW_FIT_BIAS = 1, WNW_FIT_VALUES = 2 };
#define WNW_CONTENTS_INIT WNW_INIT(wnw_contents), .kind = WNW_PART_CONTENTS

/* Appends a sentence to warning[256], which is "" or holds earlier sentences; what does not fit is cut off. */
WNW_API void wnw_part_warn(char *warning, const char *sentence);

/* ---- Runs that few programs need ---- */

/* What wnw_run.more adds to a run. Zeros are the defaults. All is copied or read within the call. */
typedef struct wnw_run_more {
    uint32_t struct_size;
    bool question_later; /* the prompt's first piece alone is compressed; the question is read afterwards */
    /* Only the first piece that is read is compressed. What is read later stays, and nothing is observed any more
     * but for `every`. A next prompt, also after wnw_session_reset, needs wnw_session_begin again. */
    bool once;
    /* A ratio counts the tokens that were read under earlier rules too, and heads that slide hold what they held: for a
     * change of rules in the middle of a timeline. Otherwise counting begins with the call. */
    bool goes_on;
    /* Expected questions, for policies with a task-aware second pass: task_tokens[i] has n_task_tokens[i]
     * tokens, i < n_tasks. n_tasks 0 = the second piece of the prompt, where it is known. */
    int32_t n_tasks;
    const int32_t *const *task_tokens;
    const int32_t *n_task_tokens;
    /* Further policies, policies[n_policies], that plans will be made with: what they need is observed too, and no rules
     * of theirs are followed. The list and the policies in it need not outlive the call. */
    int32_t n_policies;
    const wnw_policy *const *policies;
    /* CHUNK: while chunks follow, this times the size stays, and after the last chunk the size. An entry is then dropped for
     * good only after more of the text was seen. 0 or 1 = the size after each chunk. E_RANGE: another number below 1, or one
     * that is not finite. E_ARG: without CHUNK, without a size, or for a recursive policy, which judges each block once. */
    double chunk_slack;
} wnw_run_more;

WNW_DEFAULT(wnw_run_more, wnw_run_more_default)

/* ---- Plans: looking before dropping, and several policies on one reading ---- */

typedef struct wnw_plan wnw_plan;

/* Decides which entries to keep; the cache is not changed, whether or not the call fails. size NULL = WNW_SIZE_NONE.
 * Errors: E_NOT_OBSERVED, E_RANGE (the size cannot hold the protected entries), E_NOT_FINITE (scores that are not
 * numbers), E_NOMEM. report may be NULL. *plan is owned by the caller, who releases it with wnw_plan_free. */
WNW_API int wnw_session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_plan **plan,
                             wnw_report *report);

/* Makes n plans from one pass over the cache: an observation that several policies need of a layer is computed once.
 * sizes[n] and reports[n] may be NULL; plans[n] are owned by the caller. Every report has the same struct_size, which
 * is the distance from one to the next. On failure all plans are NULL. */
WNW_API int wnw_session_plan_many(wnw_session *s, const wnw_policy *const *policies, const wnw_size *sizes,
                                  int32_t n, wnw_plan **plans, wnw_report *reports);

/* Keeps what the plan says and returns the rest to the system; sliding-window layers are left as they are. E_MISMATCH:
 * the plan does not fit this cache, which is then untouched. E_NOMEM: some layers may be compacted already and the
 * others not; the session can go on. */
WNW_API int wnw_session_apply(wnw_session *s, const wnw_plan *plan, wnw_report *report);

/* Gives the n cached entries of every head the positions 0 .. n - 1 in their order and lets the next token follow as n:
 * keys are turned accordingly (StreamingLLM; kvpress' key re-rotation). Programs call it that plan and apply
 * themselves; wnw_session_compress and the rules call it where the policy says +rerotate. Earlier plans and
 * observations of queries no longer fit. Where heads hold different tokens, policies with a second pass and those that
 * match heads by position are refused from now on (E_UNSUPPORTED). E_UNSUPPORTED: heads hold different numbers of
 * entries, or a layer has a sliding window. */
WNW_API int wnw_session_renumber(wnw_session *s);

WNW_API void wnw_plan_free(wnw_plan *p);
WNW_API int32_t wnw_plan_n_layer(const wnw_plan *p);
WNW_API int32_t wnw_plan_n_head_kv(const wnw_plan *p);
/* Number of tokens that had been read when the plan was made. */
WNW_API int32_t wnw_plan_n_tokens(const wnw_plan *p);
/* Sets *positions to the kept positions of layer il, KV head ih, ascending, and returns their number. Borrowed from the
 * plan. */
WNW_API int32_t wnw_plan_head(const wnw_plan *p, int32_t il, int32_t ih, const int32_t **positions);

/* Makes a plan from data, e.g. read from a file. positions[il * n_head_kv + ih] points to n[il * n_head_kv + ih]
 * ascending positions; copied. E_ARG if they are not ascending or not in 0..n_tokens-1. *out is released with
 * wnw_plan_free. */
WNW_API int wnw_plan_new(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens,
                         const int32_t *n, const int32_t *const *positions);

/* ---- What content rules have put into a plan ---- */

/* Sets *merges to the merges of layer il, KV head ih, in ascending order of `from`, and returns their number, which is
 * 0 in most plans. Borrowed from the plan. */
WNW_API int32_t wnw_plan_merges(const wnw_plan *p, int32_t il, int32_t ih, const wnw_merge **merges);
/* Sets *channels to the key channels of layer il, KV head ih, ascending, that become 0. They stay as they are in the
 * last *n_spared kept entries. Returns their number, which is 0 in most plans. This saves no memory. Borrowed from the
 * plan. */
WNW_API int32_t wnw_plan_channels(const wnw_plan *p, int32_t il, int32_t ih, const int32_t **channels,
                                  int32_t *n_spared);

/* What takes the place of numbers of the n kept entries of a head, borrowed from the plan. */
typedef struct wnw_fitted {
    int32_t n, n_embd_head;
    const float *bias;   /* [n] what attention adds to their logits from then on; NULL = what it adds now */
    const float *values; /* [n][n_embd_head]; NULL = those they have */
} wnw_fitted;

/* That of layer il, KV head ih: zeros in most plans. */
WNW_API wnw_fitted wnw_plan_fitted(const wnw_plan *p, int32_t il, int32_t ih);

/* ---- Registry: parts from outside the library ---- */

WNW_API int wnw_registry_new(wnw_registry **out);
WNW_API void wnw_registry_free(wnw_registry *r);
/* Adds a part of any kind, given by the first member of its descriptor: wnw_registry_add(r, &mine.part). Recipes that
 * are parsed with the registry may name it. The registry borrows the descriptor, which must live until the last recipe
 * is parsed; its texts, tables and functions must outlive every policy with the part. E_ARG: a bad or taken name, no
 * function for its work, a bad option table, flags of another kind, or a struct_size that this library does not know.
 * */
WNW_API int wnw_registry_add(wnw_registry *r, const wnw_part *part);

/* ---- Plugins: parts in a shared library ---- */

/* Begins the one function that a plugin exports. Its body adds parts of any kind to the registry `r`, and returns WNW_OK or the
 * status of wnw_registry_add that failed. A plugin has this once, and examples/plugin.c is a whole one:
 *
 *     WNW_PLUGIN(r)
 *     {
 *         return wnw_registry_add(r, &mine.part);
 *     }
 */
#define WNW_PLUGIN(r)                             \
    WNW_API const char *wnw_plugin_version(void); \
    WNW_API int wnw_plugin_fill(wnw_registry *r); \
    const char *wnw_plugin_version(void)          \
    {                                             \
        return WNW_VERSION_STRING;                \
    }                                             \
    int wnw_plugin_fill(wnw_registry *r)

/* Adds the parts of the plugin at `path`, a shared library with WNW_PLUGIN. Its code runs with the rights of this process. It stays loaded
 * until the process ends, because policies may use it after the registry is gone. Nothing is added after an error. E_IO: the file
 * cannot be read. E_FORMAT: it is no shared library that can be loaded here. E_ARG: it is no plugin, or it adds no part. E_MISMATCH: it
 * was compiled with the headers of another version. Other errors are those of wnw_registry_add. */
WNW_API int wnw_registry_load(wnw_registry *r, const char *path);

/* Fills *out with the observations that sessions must make for this policy. E_ARG: a pointer is NULL (zeros where it is
 * the policy), or struct_size is not set. */
WNW_API int wnw_policy_get_needs(const wnw_policy *p, wnw_needs *out);
/* The same as a value; zeros for NULL. */
static inline wnw_needs wnw_policy_needs(const wnw_policy *p)
{
    wnw_needs needs = wnw_needs_default();
    (void)wnw_policy_get_needs(p, &needs);
    return needs;
}

/* ---- What the cache holds ---- */

/* Entries of layer il, KV head ih; 0 where there is no such head. */
WNW_API int32_t wnw_cache_n(const wnw_session *s, int32_t il, int32_t ih);
/* Positions of these wnw_cache_n entries, ascending: the original ones, unless the entries got new ones (+rerotate). Borrowed
 * until the next call on the session. */
WNW_API const int32_t *wnw_cache_positions(const wnw_session *s, int32_t il, int32_t ih);

/* ---- What generated tokens attend to ---- */

/* Has the session keep the attention of every token that wnw_session_decode reads from now on, or ends that. Each such token then costs
 * one more product of its queries with all keys. For studies and pages; policies ask for what they need by themselves.
 * E_ARG: s is NULL. E_NOMEM. */
WNW_API int wnw_session_watch(wnw_session *s, bool on);
/* The attention of the newest token in layer il, rows [n_head][*n]: the probability of each entry that the KV head of a query head held when
 * the token was read, in the order of wnw_cache_positions, the token's own last; 0 after a head's entries and outside a sliding
 * window. Borrowed until the next call on s. NULL and *n = 0 where the newest token was not decoded under wnw_session_watch,
 * where entries have moved since, or without such a layer. */
WNW_API const float *wnw_session_attention(const wnw_session *s, int32_t il, int32_t *n);

/* ---- Catalogue ---- */

/* One entry of the method list, for help and documentation. */
typedef struct wnw_method_info {
    uint32_t struct_size;
    uint32_t needs;  /* WNW_NEED_ flags of what it observes */
    uint32_t phases; /* presets and scorers: bit set of the wnw_phase they work in; 0 for other parts */
    const char *name;
    const char *kind;   /* "preset", "parity preset", "scorer", "head aggregation", "layer budget", "head
                           budget", "selector", "position rule", "content rule" */
    const char *about;  /* one sentence */
    const char *paper;  /* "" if none */
    const char *recipe; /* presets: their parts, with options that differ from the defaults; else "" */
    const char *layout; /* "uniform", "layer", "composite" or "ragged": shape of the plans; "" for parts */
    const wnw_option *options; /* NULL or a table that ends with name == NULL; presets: of their scorer */
    const char *details;       /* Markdown: formulas, deviations, cost; "" if none */
} wnw_method_info;

WNW_DEFAULT(wnw_method_info, wnw_method_info_default)

/* Name of a WNW_NEED_ flag by the number of its bit: "window attention", ...; NULL past the end. Static. */
WNW_API const char *wnw_need_name(int32_t bit);
/* Fills *out with entry i of all presets and parts, in a fixed order; its pointers are to static data. false past the
 * end, and where out is NULL or its struct_size is not set (wnw_last_error). */
WNW_API bool wnw_method_get(int32_t i, wnw_method_info *out);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_METHOD_H */
