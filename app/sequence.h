/* SPDX-License-Identifier: MIT */
/* A sequence of libllama on devices of winnow's backend, in place of a session: it is read, compressed once and continued. */
#ifndef WNW_APP_SEQUENCE_H
#define WNW_APP_SEQUENCE_H

#include "winnow_method.h"
#include "winnow_tools.h"

struct app_sequence;

struct app_sequence_params {
    const char *model;               /* the file that libllama opens */
    const char *devices;             /* names of winnow's devices, with commas between */
    const struct app_sequence *like; /* its model is taken, on its devices; NULL: the model is opened */
    const char *split;        /* shares of the layers, as libllama's -ts takes them; NULL: by free memory */
    int32_t n_ctx, n_threads; /* n_threads 0: as many as there are cores */
    wnw_kv_type kv_type;
    const char *profiles;     /* files with colons between; NULL or "": none */
    const wnw_policy *policy; /* by which it will be compressed, borrowed; NULL: it will not be */
    bool (*progress)(int32_t done, int32_t total, void *user); /* false cancels; NULL: none */
    void *user;
};

struct app_sequence_size {
    double kept_mean;       /* entries per layer and KV head, layers with windows left out */
    int64_t n_entries;      /* of all heads */
    uint64_t bytes_entries; /* of their keys and values */
    uint64_t bytes, bytes_full;
    uint64_t bytes_swa; /* of `bytes`, those of layers with a sliding window */
    uint64_t
        bytes_most; /* `bytes` after any chunk was read, before it was compressed; 0: nothing was read in chunks */
};

/* How a prompt is read in chunks. */
struct app_sequence_chunks {
    int32_t chunk; /* tokens; 0: 512 */
    double slack;  /* this number of times the size stays until the last chunk is read; 1 or less: the size */
    const wnw_size *size; /* a ratio is of the tokens that were read by then */
    int32_t n_prefix;     /* as in app_sequence_compress */
};

/* Whether a sequence can be compressed by the policy on devices that were made; profile as in wnw_bridge_check_policy. E_UNSUPPORTED: no.
 * Returns a status of the library, as the functions below do. */
int app_sequence_check_policy(const wnw_policy *policy, const wnw_profile *profile);
/* *out is released with app_sequence_free. */
int app_sequence_new(struct app_sequence **out, const struct app_sequence_params *params);
/* Sets the policy by which what is read from now on will be compressed, borrowed; NULL: it will not be. For an empty sequence. */
int app_sequence_set_policy(struct app_sequence *s, const wnw_policy *policy);
void app_sequence_free(struct app_sequence *s);

/* Makes an empty sequence the one of a state that wnw_stored_sequence has made, of n_past tokens. It is not compressed any more. */
int app_sequence_load(struct app_sequence *s, const uint8_t *state, size_t n, int32_t n_past);
/* Whether libllama rotates the rows of quantised caches whose heads have this length. Sessions do, unless they are kv_unrotated. */
bool app_sequence_rotates(int32_t n_embd_head);
/* Fills a session that has read nothing with what the sequence holds of tokens[n_read]: wnw_session_take_sequence. */
int app_sequence_give(struct app_sequence *s, wnw_session *to, const int32_t *tokens);
/* Reads tokens. on_logits (may be NULL) gets the logits of each, with its number from 0 on. */
int app_sequence_read(struct app_sequence *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits,
                      void *user);
/* Compresses what was read by the policy. n_prefix: first tokens that a chat template wrote. A ratio or budget counts them, as that of a
 * session does. A ratio is of what came after the last compression, and what that has left stays. */
int app_sequence_compress(struct app_sequence *s, const wnw_size *size, int32_t n_prefix);
/* Reads tokens that follow nothing, and compresses after every chunk of them, so that a prompt fits whose full cache does not.
 * E_UNSUPPORTED: the policy judges a whole prompt alone. */
int app_sequence_read_chunks(struct app_sequence *s, const int32_t *tokens, int32_t n,
                             const struct app_sequence_chunks *chunks);
/* Takes back all but the first n tokens. E_UNSUPPORTED: some of those that go were compressed together with others. */
int app_sequence_rewind(struct app_sequence *s, int32_t n);
int32_t app_sequence_n_read(const struct app_sequence *s);
/* Milliseconds in which chunks were compressed while a prompt was read. */
double app_sequence_compress_ms(const struct app_sequence *s);
void app_sequence_measure(const struct app_sequence *s, struct app_sequence_size *out);
/* The positions, ascending, of the entries that head ih of layer il holds, layers counted as in sessions: positions[*n], with room for all tokens
 * that were read. n_swa: of a layer with a sliding window, the newest that it sees. */
int app_sequence_head(const struct app_sequence *s, int32_t il, int32_t ih, int32_t n_swa, int32_t *positions,
                      int32_t *n);
/* Of the last token that was read; NULL: there are none. */
const float *app_sequence_logits(const struct app_sequence *s);
/* What wnw_generate_by takes; the model is for texts. */
wnw_decoder app_sequence_decoder(struct app_sequence *s, const wnw_model *model);

#endif
