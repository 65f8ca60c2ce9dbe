/* SPDX-License-Identifier: MIT */
/*
 * For studies of models, methods and this library: query heads that are switched off, where the time of an engine
 * goes, kernels. Programs that only read and answer do not need this header. Conventions are those of winnow.h.
 */
#ifndef WINNOW_STUDY_H
#define WINNOW_STUDY_H

#include "winnow_batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Query heads that are switched off ---- */

/* Query head h of layer il. */
typedef struct wnw_head {
    int32_t il, h;
} wnw_head;

/* Which tokens are read with masked heads. */
typedef enum wnw_mask_phase {
    WNW_MASK_ALL,    /* all */
    WNW_MASK_DECODE, /* those of wnw_session_decode and wnw_decode_batch, not those of prompts */
} wnw_mask_phase;

/* What a masked head gives in front of the output projection. */
typedef enum wnw_mask_form {
    WNW_MASK_ZERO, /* 0 */
    WNW_MASK_MEAN, /* the output of a query of 0, as in CompressKV's program: the mean of the values that it sees */
} wnw_mask_form;

/* Switches query heads off, to see what they are for: the output of the n heads is that of the form (wnw_session_mask_form,
 * 0 by default) for all tokens of the phase that are read from now on. Replaces earlier masks; n = 0 ends masking. Keys and values
 * are cached as before, and policies observe attention in front of masks of the form zero, and the even one of the form
 * mean; wnw_session_begin changes nothing of it. After a failure
 * the earlier masks hold. E_ARG: no such phase. E_RANGE: no such head, n < 0. E_NOMEM. */
WNW_API int wnw_session_mask_heads(wnw_session *s, const wnw_head *heads, int32_t n, wnw_mask_phase phase);
/* Sets what masked heads give from now on; present masks and later ones have the form. Source of MEAN: CompressKV (arXiv
 * 2508.02401), whose program sets queries to 0, so that the attention is the same on all entries that the token sees; attention sinks,
 * ALiBi and biases of entries still count. E_ARG: no such form. */
WNW_API int wnw_session_mask_form(wnw_session *s, wnw_mask_form form);

/* Reads a list of query heads of m:
 *   3-1,7-4,...    by layer and head, both from 0;
 *   srh:topN       the N heads of all layers with the largest mean semantic retrieval score in p, best first;
 *                  equal scores in the order of layers, then heads;
 *   trad:topN      the same by traditional retrieval score;
 *   random:N:SEED  N different heads, every choice as likely as any other, ascending;
 *   random:N:SEED:M  the same without the M heads that srh:topM names.
 * p may be NULL where it is not needed. *heads, [*n], is owned by the caller, who releases it with wnw_free.
 * E_ARG: not a list, a head twice, or the profile has no such scores. E_RANGE: no such head, or not as many.
 * E_MISMATCH: the profile is of another model. */
WNW_API int wnw_heads_parse(wnw_head **heads, int32_t *n, const char *text, const wnw_model *m,
                            const wnw_profile *p);
/* Bit set of the wnw_profile_kind that wnw_heads_parse needs for the list. */
WNW_API uint32_t wnw_heads_profiles(const char *text);

/* ---- Where the time of an engine goes ---- */

/* Time and work of one part of the passes through the model. */
typedef struct wnw_work {
    double ms;
    double ops;   /* operations of products; a multiplication and an addition count one each */
    double bytes; /* bytes of weights, keys and values that must be moved at least: each once per pass */
} wnw_work;

/* What the passes of an engine did while it measured. The times of all parts add up to that of the passes; the rest of
 * a call is text, plans and compression. */
typedef struct wnw_engine_times {
    uint32_t struct_size;
    int64_t n_pass;       /* passes through all or some layers: ubatches and decode steps */
    int64_t n_token;      /* rows of these passes */
    wnw_work weights;     /* products with weights, biases included, but for the last one */
    wnw_work attention;   /* storing keys and values, attention over the cache */
    wnw_work observation; /* what policies have noted of the passes; its bytes are not counted */
    wnw_work logits;      /* the product with the output matrix */
    wnw_work other;       /* embeddings, norms, RoPE, activations, building graphs; its work is not counted */
} wnw_engine_times;

WNW_DEFAULT(wnw_engine_times, wnw_engine_times_default)

/* Begins to measure, with all numbers at 0, or ends it; the numbers stay until the next beginning. Results do not
 * change. Measured passes take about a microsecond more for each of twelve places per layer. E_ARG: e is NULL. */
WNW_API int wnw_engine_measure(wnw_engine *e, bool on);
/* Fills *out. E_ARG: a pointer is NULL (zeros where it is the engine), or struct_size is not set. */
WNW_API int wnw_engine_get_times(const wnw_engine *e, wnw_engine_times *out);

/* ---- Kernels ---- */

/* A kernel, and whether it is in use on this CPU. Strings are static. */
typedef struct wnw_kernel_info {
    uint32_t struct_size;
    const char *work;  /* "attention", "attention of prompts", "far scores", "weights" */
    const char *name;  /* "avx512-bf16" */
    const char *lacks; /* what it wants and this CPU lacks, as /proc/cpuinfo calls it; NULL: nothing */
    bool built;        /* this build has it */
    bool used;         /* it is the best of its work that is built and lacks nothing */
} wnw_kernel_info;
WNW_DEFAULT(wnw_kernel_info, wnw_kernel_info_default)

/* Number of the kernels that are known on this architecture, those of one work in a row and the best one first. */
WNW_API int32_t wnw_n_kernels(void);
/* Fills *out for kernel i, 0 .. wnw_n_kernels() - 1; thread-safe. E_ARG: another i. */
WNW_API int wnw_kernel_get(int32_t i, wnw_kernel_info *out);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_STUDY_H */
