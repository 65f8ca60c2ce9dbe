/* SPDX-License-Identifier: MIT */
/*
 * winnow: making calibration results.
 *
 * Some methods read numbers that were measured once on a model (a *profile*, winnow.h). A *calibration*
 * measures them: it reads texts with the model and returns the contents of one or several profile files,
 * which the program stores where it likes, and which wnw_profile_add_file reads.
 *
 *     wnw_calibrate_params p = wnw_calibrate_default_params();
 *     wnw_calibration *c = NULL;
 *     p.texts = texts;
 *     p.n_texts = n_texts;
 *     p.journal = "srh.journal";
 *     if (wnw_calibrate(&c, model, "srh", &p) == WNW_OK)
 *         store(wnw_calibration_profile(c, 0, NULL));
 *     wnw_calibration_free(c);
 *
 * The results depend on the model, the texts and the parameters above `n_threads` alone: they are the same
 * bytes for any number of threads, and also where the work was interrupted and taken up again. Conventions
 * are those of winnow.h.
 */
#ifndef WINNOW_CALIBRATE_H
#define WINNOW_CALIBRATE_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ======== What a profile holds ======== */

/* Kinds of calibration results; a bit of the sets below. */
typedef enum wnw_profile_kind {
    WNW_PROFILE_SRH,      /* query heads of each layer, best first, and their scores */
    WNW_PROFILE_LAYERS,   /* share of every layer in the output error */
    WNW_PROFILE_COMPILER, /* CompilerKV's tables */
    WNW_PROFILE_HEADS,    /* one importance per query head and one per KV head */
    WNW_PROFILE_STATS,    /* mean and covariance of queries */
    WNW_PROFILE_CURVES,   /* share of its entries that every KV head keeps, for shares of the model's */
    WNW_PROFILE_SHARES,   /* share of every KV head's entries that are among the best of the model's */
    WNW_PROFILE_GATE,     /* one linear form per KV head that predicts an entry's score from what is cached */
    WNW_PROFILE_INPUTGATE, /* gates of every layer that predict it from the hidden state that the layer reads */
    WNW_PROFILE_QUALITY,   /* what is lost, as next tokens show it, when shares of all scores are dropped */
    WNW_PROFILE_GRADIENT, /* how much the last hidden states depend on every layer */
} wnw_profile_kind;
#define WNW_N_PROFILE_KINDS 11

/* Reads one file in the library's own format without its model: shapes and fingerprint are those that the file names,
 * and everything else is checked as above. For looking at a profile. *out is released with wnw_profile_free. Errors are
 * those of wnw_profile_add_file. */
WNW_API int wnw_profile_open(wnw_profile **out, const char *path);
/* The fingerprint of the model that the profile belongs to; "" for NULL. Borrowed, as long as the profile is there. */
WNW_API const char *wnw_profile_fingerprint(const wnw_profile *p);
/* Takes the first file off a list of profiles with ':' between them, as the environment's WINNOW_PROFILE is one: *path is its name,
 * to be released with wnw_free, and *list what comes after it. Empty names are passed over. *path = NULL: there is no more.
 * E_NOMEM: *list is as it was. */
WNW_API int wnw_profile_next(char **path, const char **list);

/* One table of results. */
typedef struct wnw_profile_table {
    uint32_t struct_size;
    const char *name; /* as in the file, e.g. "srh_mean"; static */
    wnw_profile_kind kind;
    int32_t n_dim, shape[4]; /* shape[n_dim], outermost first: [n_layer][n_head] */
    bool is_whole;           /* whole numbers: heads, ranked */
} wnw_profile_table;

WNW_DEFAULT(wnw_profile_table, wnw_profile_table_default)

/* Fills *out with table i of a profile; false past the last. */
WNW_API bool wnw_profile_get_table(const wnw_profile *p, int32_t i, wnw_profile_table *out);
/* Writes the n values of the table of this name to out. E_ARG: there is no such table, or it has another number of
 * values. */
WNW_API int wnw_profile_get_values(double *out, int64_t n, const wnw_profile *p, const char *name);

/* Says which kinds, a bit set, the program found by itself rather than was asked to use; none at first. Results of such
 * a kind are left out, with a warning, where a policy works without them and cannot use them: CompilerKV's tables, made
 * for another size or other options. Otherwise that is E_MISMATCH. Not while another thread plans with the profile. */
WNW_API void wnw_profile_set_found(wnw_profile *p, uint32_t kinds);
/* Bit set of the wnw_profile_kind it holds. NULL = 0. */
WNW_API uint32_t wnw_profile_kinds(const wnw_profile *p);
/* "srh" and so on, the first part of a file name; NULL past the end. Static. */
WNW_API const char *wnw_profile_kind_name(int32_t kind);

/* ======== Making results ======== */

/* How much is measured. QUICK takes minutes on two cores for a model of 135M parameters; PAPER is as much as the
 * authors of the methods measured. */
typedef enum wnw_effort { WNW_EFFORT_NORMAL, WNW_EFFORT_QUICK, WNW_EFFORT_PAPER } wnw_effort;

/* A text that is read: UTF-8, len bytes. The profile gives its name, length and hash. */
typedef struct wnw_calibration_text {
    const char *name;
    const char *text;
    size_t len;
} wnw_calibration_text;

/* Zeros are the defaults. All pointers are borrowed for the duration of the call only. */
typedef struct wnw_calibrate_params {
    uint32_t struct_size;
    wnw_effort effort;
    const char *options;               /* of the kind: "key=value,...", as of --set; NULL = defaults */
    const wnw_calibration_text *texts; /* [n_texts] */
    int32_t n_texts;
    uint32_t seed;          /* of everything that is drawn at random; default 42 */
    wnw_kv_type kv_type;    /* of the caches that are measured */
    const int32_t *budgets; /* [n_budgets] entries per layer and KV head, for kinds whose results belong to a
                               budget */
    int32_t n_budgets;
    const char *recipe;         /* of the policy, for kinds that measure one */
    const wnw_profile *profile; /* results that the kind builds upon; NULL = none */
    int32_t n_threads;          /* 0 = usable cores */
    /* Names of further outputs that are wanted (wnw_calibration_output). */
    const char *const *outputs;
    int32_t n_outputs;
    /* Path of a file to which finished units of work are written, and from which a later call with the same model
     * and parameters takes them. It is made where it does not exist, and stays after the call: the program removes
     * it once it has stored the results. The library removes it where the measurements themselves made the call
     * fail, because a call that goes on from there fails in the same way. NULL = none. */
    const char *journal;
    /* Called a few times a second: `done` of `total` steps of about equal length are done; `what` names the current
     * step in a few words, and is valid during the call. Return false to stop (E_CANCELLED). NULL = none. */
    bool (*progress)(int64_t done, int64_t total, const char *what, void *user);
    void *progress_user;
} wnw_calibrate_params;

static inline wnw_calibrate_params wnw_calibrate_default_params(void)
{
    wnw_calibrate_params p = WNW_ZERO;
    p.struct_size = (uint32_t)sizeof p;
    p.seed = 42;
    return p;
}

/* Results of a calibration. Read-only; may be shared by threads. */
typedef struct wnw_calibration wnw_calibration;

/* Runs the calibration of a kind. params NULL = defaults. *out is released with wnw_calibration_free. Errors: E_ARG (an
 * unknown kind or option; no text where the kind reads one), E_RANGE (an option, or a text or context too short for
 * what is measured), E_MISMATCH (the journal is of another model, kind, text or setting; the message names the field),
 * E_FORMAT (the journal is damaged), E_IO, E_CANCELLED (the journal has all that was finished), E_UNSUPPORTED (the
 * model cannot be measured so, e.g. it answers no probe), E_NOT_FINITE, E_NOMEM. */
WNW_API int wnw_calibrate(wnw_calibration **out, const wnw_model *m, const char *kind,
                          const wnw_calibrate_params *params);
WNW_API void wnw_calibration_free(wnw_calibration *c);

/* Contents of profile file i, NUL-terminated JSON; NULL past the last. *name (may be NULL) becomes the file's usual
 * name: "srh.json", "compiler-b256.json". Both are borrowed from c. */
WNW_API const char *wnw_calibration_profile(const wnw_calibration *c, int32_t i, const char **name);
/* Contents of another output by name, NUL-terminated, borrowed from c; NULL if there is none. "report" is always there:
 * a few lines for people. The others are made where params.outputs names them: heads has "dump" (CSV: probe, layer,
 * head, importance, far), srh has "dump" (CSV: probe, layer, head, semantic, traditional) and "probes" (JSONL: id,
 * prompt_tokens, target_first, target_len, generated_tokens). */
WNW_API const char *wnw_calibration_output(const wnw_calibration *c, const char *name);

/* What a file of another program is. */
typedef struct wnw_import_params {
    uint32_t struct_size;
    /* "srh", "trad": ranked heads or scores of heads, semantic or traditional (CompressKV). "heads":
     * importance of query heads (HeadKV). "duo": gates of KV heads, a table of text (DuoAttention). "layers":
     * shares of layers (CompressKV). "kvzap", "fastkvzip": gates on hidden states, files of tensors (KVzap, Fast KVzip).
     * docs/reference/profiles.md shows the formats. */
    const char *as;
    int32_t sink, recent; /* "duo": entries that streaming heads keep; 0 = not stated */
} wnw_import_params;

WNW_DEFAULT(wnw_import_params, wnw_import_default_params)

/* Reads the file of another program at `path`, which belongs to model m, and makes a profile file of it: *text is
 * NUL-terminated JSON, owned by the caller, who releases it with wnw_free. E_ARG: `as` is not one of the words above.
 * E_IO: cannot be read. E_FORMAT: not such a file. E_MISMATCH: the shape is another model's. */
WNW_API int wnw_profile_import(char **text, const wnw_model *m, const char *path,
                               const wnw_import_params *params);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_CALIBRATE_H */
