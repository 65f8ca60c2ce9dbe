/* SPDX-License-Identifier: MIT */
/*
 * The differences between model families. A family is one file with one descriptor and one row in arch.c; the
 * graph (forward/graph.c) reads the descriptor's flags and never a family's name.
 */
#ifndef WNW_ARCH_H
#define WNW_ARCH_H

#include "base/err.h"

#include <ggml.h>
#include <gguf.h>

enum { WNW_MAX_LAYERS = 1024 }; /* more are taken for damage */

struct wnw__hparams {
    int32_t n_layer, n_head, n_head_kv, n_embd, n_embd_head, n_ff, n_ctx_train, n_vocab;
    int32_t n_rot; /* dimensions of a head that RoPE turns */
    float rms_eps;
    float rope_freq_base, rope_freq_scale;         /* global layers */
    float rope_freq_base_swa, rope_freq_scale_swa; /* sliding-window layers */
    int32_t n_swa;                                 /* window in tokens, 0 = none */
    bool swa_chunked; /* these layers see their own chunk of n_swa tokens in place of the last n_swa */
    bool swa[WNW_MAX_LAYERS]; /* which layers slide, where there is a window */
    float embd_scale;         /* factor on the token embedding */
    float q_scale;            /* factor on queries before attention */
    float attn_scale;         /* factor inside attention */
    bool rope_unknown;        /* how keys are turned is not known, as it may be through libllama */
    float logit_cap;          /* logits x become cap tanh(x / cap); 0 = they stay */
};

/* Biases [rows] and factors [1] belong to the matrix they are named after; NULL = none. */
struct wnw__layer_weights {
    struct ggml_tensor *attn_norm, *wq, *wk, *wv, *wo;
    struct ggml_tensor *bq, *bk, *bv, *bo;
    struct ggml_tensor *q_factor, *k_factor, *v_factor, *o_factor;
    struct ggml_tensor *q_norm, *k_norm;                /* qk_norm */
    struct ggml_tensor *attn_post_norm, *ffn_post_norm; /* post_norm */
    struct ggml_tensor *ffn_norm, *ffn_gate, *ffn_up, *ffn_down;
    struct ggml_tensor *gate_bias, *up_bias, *down_bias;
    struct ggml_tensor *gate_factor, *up_factor, *down_factor;
};

struct wnw__weights {
    struct ggml_tensor *tok_embd; /* read row by row, never repacked */
    struct ggml_tensor *output_norm;
    struct ggml_tensor *output; /* = tok_embd's data where embeddings are tied */
    struct ggml_tensor *output_bias, *output_factor;
    struct ggml_tensor *rope_freqs; /* Llama 3.1: divisor of each frequency, or NULL */
};

/* What a family may have is what libllama reads for it; anything else in a file is refused (decision 043). */
struct wnw__arch {
    const char *name;  /* general.architecture */
    int rope_type;     /* GGML_ROPE_TYPE_* */
    bool qkv_bias;     /* q, k and v have biases, which the file must hold; elsewhere it may */
    bool other_biases; /* the attention's output and the feed-forward may have biases */
    bool output_bias;  /* logits may have a bias */
    bool ffn_factors;  /* the feed-forward's matrices may have factors */
    bool rope_factors; /* frequencies may have divisors */
    bool partial_rope; /* RoPE may turn less than a head */
    bool qk_norm;      /* RMS norm of each query and key head before RoPE */
    bool post_norm;    /* RMS norm after attention and after the feed-forward */
    bool gelu;         /* gated GELU instead of gated SiLU */
    /* Keys (".suffix") that setup reads and that other families must not have, NULL at the end; or NULL. */
    const char *const *keys;
    /* Adjusts hyper-parameters after the common keys were read. NULL = nothing to do. */
    int (*setup)(const struct gguf_context *g, struct wnw__hparams *hp);
};

/* Names of the families that have graphs here; NULL past the end. */
const char *wnw__arch_name(int32_t i);
/* The family of this general.architecture; NULL if unknown. */
const struct wnw__arch *wnw__arch_find(const char *name);

/* Checked reads of "<arch>.<key>" into *out, which gets the default where the key is absent. E_FORMAT: its
 * type or value is wrong. */
int wnw__key_i32(const struct gguf_context *g, const char *key, int32_t def, int32_t *out);
int wnw__key_f32(const struct gguf_context *g, const char *key, float def, float *out);
/* A key by its full name or as a ".suffix" of the architecture's name, which is written out to full; -1 if it is absent. */
enum { WNW_KEY_MAX = 128 };
int64_t wnw__key_find(const struct gguf_context *g, const char *key, char full[WNW_KEY_MAX]);
/* The number of values of a key: the length of an array, otherwise 1. */
size_t wnw__key_count(const struct gguf_context *g, int64_t id);
/* Value i of the key as a number; false (0 or 1 in it) is one. Returns false where it is none. */
bool wnw__key_number(const struct gguf_context *g, int64_t id, size_t i, double *out);
/* The string at the key, borrowed from g; NULL where it is absent or not a string. */
const char *wnw__key_str(const struct gguf_context *g, const char *key);

bool wnw__layer_is_swa(const struct wnw__hparams *hp, int32_t il);

#endif
