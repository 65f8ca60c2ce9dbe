/* SPDX-License-Identifier: MIT */
/* Keys and values of a context of libllama: the memory that it asks for, entries by cell, and facts of ggml's nodes. */
#ifndef WNW_BRIDGE_CELLS_H
#define WNW_BRIDGE_CELLS_H

#include "attend/attend_cells.h"
#include "base/shape.h"
#include "cache/cache.h"
#include "winnow_method.h"

#include <ggml-backend-impl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct wnw__bridge_backend; /* bridge/bridge.h */

/* ---- The cache of a context: one winnow buffer that has tensors of keys and values ---- */

struct wnw__bridge_layer;
struct wnw__wrap_layer;
struct wnw__bridge_far;

/* cache_k or cache_v of one layer: [n_embd, n_cell, n_stream], or for transposed values [n_cell, n_embd, n_stream]. */
struct wnw__bridge_tensor {
    uint8_t *base; /* the tensor's addresses; NULL: the layer has no such tensor */
    enum ggml_type type;
    int32_t n_embd, n_cell, n_stream;
    bool is_v;
    struct wnw__bridge_layer *layer;
};

/* What graphs show of the attentions over a layer and what comes before and after them (graph/layer_info.c). A layer may have
 * several readers: its own attention, the first, and those of layers without a cache of their own. Tensors are the model's. */
struct wnw__bridge_layer_info {
    int32_t n_reader; /* 0: nothing is known yet */
    /* The following are of the layer's own attention. */
    int32_t n_head; /* query heads */
    float scale;    /* of q . k */
    struct wnw__score_form form;
    /* queries turn by plain RoPE, with the parameters that follow, and then are multiplied with q_scale */
    bool turns;
    bool neox;
    int32_t n_rot, n_ctx_train;
    float base, freq_scale, q_scale;
    const struct ggml_tensor *factors; /* that divide frequencies; NULL = 1 */
    const struct ggml_tensor *wo;      /* output projection; NULL: not found */
    int32_t n_input;                   /* numbers of what the attention reads of a token; 0: not found */
    /* Size of the blocks that libllama multiplies with a Hadamard matrix (kernel/kernel.h) before it stores keys, and values;
     * 0: it stores them as they are. */
    int32_t k_block, v_block;
};

/* Queries of a layer as its attention got them. */
struct wnw__bridge_queries {
    void *q;          /* [room][n_reader][n_head][d_k]; NULL: none are kept */
    wnw_kv_type type; /* WNW_KV_F32; WNW_KV_F16 of all cells where rounded ones do */
    int32_t *cell;    /* [room] their cells, counted over all streams; -1 = none */
    int32_t room, at, n_reader, n_head;
    bool all; /* of every cell, in its own place; else the newest, a ring */
};

enum wnw__bridge_kind { WNW_BRIDGE_UNSEEN, WNW_BRIDGE_RAGGED, WNW_BRIDGE_PLAIN };

struct wnw__bridge_layer {
    char tag[48]; /* the tensors' name without the k or v */
    int32_t il;
    struct wnw__bridge_cache *cache;
    struct wnw__bridge_tensor k, v;
    enum wnw__bridge_kind kind; /* never changes once it is decided */
    bool unknown; /* while a graph is looked at: it has a node on the layer that we do not know */
    bool lost;    /* rows that libllama wrote found no memory; graphs on the layer fail */

    /* The following are known once the layer is ragged. */
    int32_t n_head, d_k, d_v; /* of one stream */
    bool transposed;          /* values */
    bool v_in_keys;           /* MLA */
    struct wnw__cache rows;   /* one layer, n_stream * n_head heads, positions are cells */
    bool loose;               /* rows, which are tight, may have more room than they need */
    uint8_t *written;         /* [n_stream * n_cell] whether the cell has been written since the last clear */

    struct wnw__wrap_layer
        *wrap; /* on a wrapped device (wrap/wrap.h), which has its entries; NULL: they are in `rows` */
    const struct wnw__bridge_far *far; /* what that device does; NULL: it is none */

    struct wnw__bridge_layer_info info; /* while there is a policy */
    struct wnw__bridge_queries queries; /* that a policy wants to see */
};

/* What is noted of a cell while there is a policy. */
struct wnw__bridge_note {
    int32_t write_order; /* counts the cells as they are written; 0: none */
    bool single_row;     /* it was the only row of its sequence in its batch */
    bool judged;         /* a policy has decided on it */
    bool unobserved;     /* nothing else is known of it, because memory ran out */
    bool query_skipped;  /* its query was not recorded, and no policy will look with it */
};

/* What the context of each buffer of keys and values begins with: where the buffer begins. */
struct wnw__bridge_addresses {
    uint8_t *base;
};

struct wnw__bridge_cache {
    struct wnw__bridge_addresses
        at; /* first. Reserved, or with `borrowed` the mapping of a file of weights */
    bool borrowed;
    size_t size;
    struct wnw__bridge_layer **layers;
    int32_t n_layer, cap_layer;    /* 0 once libllama has freed the buffer */
    struct wnw__bridge_note *note; /* [n_stream * n_cell], or NULL while no policy wants them */
    /* [n_stream * n_cell] of layers with windows, for programs that know their sequences: the cell of the other layers that was written for the
     * same token, -1 = not known; NULL: no cell is known */
    int32_t *twin;
    int32_t n_cell, n_written;
    /* rows without a note were written since the last clear, because memory ran out */
    bool unobserved;
    bool tight;        /* layers have no room for later entries (wnw_bridge_set_tight) */
    int64_t made;      /* when, to compare */
    int32_t n_buffer;  /* on a wrapped device; elsewhere it has one */
    atomic_int owners; /* its buffers, and every backend that has seen it in a graph */
};

/* Gives up one ownership. */
void wnw__bridge_cache_release(struct wnw__bridge_cache *c);
/* A buffer over memory of the caller's, such as a mapped file. */
ggml_backend_buffer_t wnw__bridge_buffer_over(void *memory, size_t size);
/* The buffer type, whose buffers' context is a struct wnw__bridge_cache. */
ggml_backend_buffer_type_t wnw__bridge_buffer_type(void);
/* A cache at these addresses, without layers yet; NULL: no memory. */
struct wnw__bridge_cache *wnw__bridge_cache_new(void *base, size_t size, bool borrowed);
/* Its buffer is freed: frees the layers, and gives up the addresses and an ownership. */
void wnw__bridge_cache_close(struct wnw__bridge_cache *c);
/* Whether a tensor of this name is keys or values of a layer. */
bool wnw__bridge_is_cache_name(const char *name);
/* Takes a tensor of libllama's into the cache, if it is keys or values. false: no memory. */
bool wnw__bridge_tensor_init(struct wnw__bridge_cache *c, struct ggml_tensor *t);
/* Where a buffer of keys and values begins. All such buffers have this function, by which they are known. */
void *wnw__bridge_buffer_base(ggml_backend_buffer_t buffer);
/* The tensor of a cache that t is or is a view of; NULL if it is none. */
struct wnw__bridge_tensor *wnw__bridge_tensor_of(const struct ggml_tensor *t);
/* Rows that libllama writes are lost: says the last error. ggml's interface has no way to report it there, so the next graph on
 * the layer fails. */
void wnw__bridge_layer_lose(struct wnw__bridge_layer *l);

/* Notes that a graph has the cache. */
int wnw__bridge_backend_see(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c);
/* The first stream that the keys of an attention, a view of a cache, are of. */
int32_t wnw__bridge_first_stream(const struct ggml_tensor *k);

/* ---- Entries (cells/store.c) ---- */

/* What the first graph shows of a layer. */
struct wnw__bridge_shape {
    int32_t n_head, d_k, d_v;
    bool transposed, v_in_keys;
};
/* The longest key or value that a ragged layer may have. */
enum { WNW_BRIDGE_MOST_D = 1024 };
/* Makes a layer ragged that holds no data yet. */
int wnw__bridge_layer_take(struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape);
/* Gives back what writing entries one by one left over, if the cache is tight. */
int wnw__bridge_layer_trim(struct wnw__bridge_layer *l);
/* Sets whether the layers of a cache, and those to come, are tight. */
int wnw__bridge_cache_set_tight(struct wnw__bridge_cache *c, bool tight);
/* Drops all entries and gives their memory back. */
void wnw__bridge_layer_clear(struct wnw__bridge_layer *l);
void wnw__bridge_layer_free(struct wnw__bridge_layer *l);
/* Makes entries in every head of a stream for cells cell[n], which ascend. */
int wnw__bridge_layer_place(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n);
/* Writes the keys (or values) x [n_head][d] of a cell to the heads that have an entry for it. */
void wnw__bridge_layer_write(struct wnw__bridge_layer *l, bool is_v, int32_t stream, int32_t cell,
                             const float *x);
/* The same of one head, counted over all streams, x [d], if its entry for the cell is one of from .. to-1. */
void wnw__bridge_head_write(struct wnw__bridge_layer *l, bool is_v, int32_t head, int32_t cell, int32_t from,
                            int32_t to, const float *x);
/* Converts the key or value of the entry in a row of a head, counted over all streams, to x[d], and back. */
void wnw__bridge_layer_read(const struct wnw__bridge_layer *l, bool is_v, int32_t ih, int32_t row, float *x);
void wnw__bridge_layer_set(struct wnw__bridge_layer *l, bool is_v, int32_t ih, int32_t row, const float *x);
/* Makes the keys (is_v: the values) of the entries of stream `to` a copy of those of stream `from`. */
int wnw__bridge_layer_copy_stream(struct wnw__bridge_layer *l, bool is_v, int32_t from, int32_t to);
/* Drops entries of head ih of a stream: those whose cells cell[n] (ascending) names, as far as they are there. Memory goes
 * back when a layer has become smaller by an eighth. */
int wnw__bridge_layer_drop(struct wnw__bridge_layer *l, int32_t stream, int32_t ih, const int32_t *cell,
                           int32_t n);

/* Bytes at .. at+n-1 of a tensor of a ragged layer, as libllama sees it: rows of cells that were never written are 0, and
 * where a head has dropped an entry its part of the row has all bits set. Rows that are written so are not stored. */
void wnw__bridge_tensor_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst);
int wnw__bridge_tensor_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src);
/* Copies all entries to the tensor's addresses, and back. */
void wnw__bridge_tensor_spread(const struct wnw__bridge_tensor *t);
void wnw__bridge_tensor_gather(struct wnw__bridge_tensor *t);
/* Gives the memory at the tensor's addresses back. */
void wnw__bridge_tensor_release(const struct wnw__bridge_tensor *t);
void wnw__bridge_queries_free(struct wnw__bridge_queries *q);

/* ---- Notes of nodes (cells/notes.c) ---- */

enum wnw__bridge_what { WNW_BRIDGE_NOT_OURS, WNW_BRIDGE_STORE, WNW_BRIDGE_ATTEND, WNW_BRIDGE_ATTEND_CHAIN };

/* What a node of winnow's computes. An attention has the sources q, keys, values, mask or NULL, sinks or NULL; those after
 * them only keep the order. */
struct wnw__bridge_node {
    int32_t what;
    float scale, cap, max_bias;
    /* Stores before it that it runs as well: of a store the first, of an attention both; NULL: none (graph/fuse.c) */
    const struct ggml_tensor *with[2];
};

struct wnw__bridge_node_note {
    const struct ggml_tensor *node; /* NULL: the slot is free */
    struct wnw__bridge_node ours;
    /* of a norm or gate that products may compute (graph/fuse.c); its readers when the graph was noted, and in the graph
     * that runs */
    int32_t kind, n_reader, n_seen;
};

struct wnw__bridge_node_notes {
    struct wnw__bridge_node_note *slot; /* [cap] */
    int32_t n, cap;
};

/* NULL: nothing was ever noted of the node. */
struct wnw__bridge_node_note *wnw__bridge_notes_find(const struct wnw__bridge_node_notes *notes,
                                                     const struct ggml_tensor *node);
/* The same, made where there is none. It is valid until the next one is made. NULL: no memory. */
struct wnw__bridge_node_note *wnw__bridge_notes_add(struct wnw__bridge_node_notes *notes,
                                                    const struct ggml_tensor *node);
void wnw__bridge_notes_free(struct wnw__bridge_node_notes *notes);

/* .what is WNW_BRIDGE_NOT_OURS where it is none. */
struct wnw__bridge_node wnw__bridge_node_get(const struct wnw__bridge_backend *b,
                                             const struct ggml_tensor *node);
/* Rows that a store writes, and the cell, counted over all streams, of row i (cells/cells.c). */
int64_t wnw__bridge_store_rows(const struct ggml_tensor *node);
int64_t wnw__bridge_store_cell(const struct ggml_tensor *node, int64_t i);

/* ---- Contacts with ggml: operations and their parameters (cells/contacts.c) ---- */

/* Whether a node only gives another shape to its source. By number, which is checked when the backend is loaded: every node of every
 * token is asked. */
static inline bool wnw__bridge_is_view(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}
/* Operations by name: their numbers differ between versions of ggml. */
static inline bool wnw__bridge_is_op(const struct ggml_tensor *node, const char *name)
{
    return strcmp(ggml_op_name(node->op), name) == 0;
}
/* Words of op_params by operation (cells/contacts.c checks them when the backend is loaded). */
enum wnw__bridge_word {
    WNW_ROPE_N_ROT = 1,
    WNW_ROPE_MODE = 2,
    WNW_ROPE_N_CTX = 4,
    WNW_ROPE_BASE = 5,
    WNW_ROPE_FREQ_SCALE = 6,
    WNW_ROPE_MIX = 7,
    WNW_ROPE_FACTOR = 8,
    WNW_FLASH_SCALE = 0,
    WNW_FLASH_MAX_BIAS = 1,
    WNW_FLASH_CAP = 2,
    WNW_SOFT_MAX_SCALE = 0,
    WNW_SOFT_MAX_MAX_BIAS = 1,
    WNW_SCALE_FACTOR = 0,
    WNW_SCALE_ADDEND = 1,
    WNW_NORM_EPS = 0,
    WNW_GLU_SWAPPED = 1,
};
/* E_BACKEND: this process's ggml keeps something elsewhere; the message says what. */
int wnw__bridge_contacts_check(void);
/* Whether a node has no parameter but those that are known of its operation: all other words are 0. */
bool wnw__bridge_has_known_words(const struct ggml_tensor *node);
/* Word i of the operation's parameters, as the number that it is. */
static inline float wnw__bridge_param(const struct ggml_tensor *node, int i)
{
    float x;
    memcpy(&x, node->op_params + i, sizeof x);
    return x;
}
/* The function of a custom operation, which ggml keeps first. */
ggml_custom_op_t wnw__bridge_custom_function(const struct ggml_tensor *node);

/* ---- The processor (cells/cpu.c) ---- */

void wnw__bridge_set_n_threads(ggml_backend_t backend, int n_threads);
void wnw__bridge_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data);
/* Whether a variable of the environment is set to something but "0". */
static inline bool wnw__bridge_is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0") != 0;
}
/* The device that computes what is not ours; NULL if there is none. */
ggml_backend_dev_t wnw__bridge_cpu(void);

/* What a wrapped device does where the device WINNOW works on its own store (wrap/wrap_run.c). A table, because these files know nothing of such
 * devices. */
struct wnw__bridge_far {
    /* After a state with parts of dropped entries was restored, the layer's heads say what it has. E_NOMEM. */
    int (*find_holes)(struct wnw__bridge_layer *l);
    int64_t (*entries)(const struct wnw__bridge_layer *l);
    uint64_t (*bytes)(const struct wnw__bridge_layer *l);
    int32_t (*room_entries)(const struct wnw__bridge_layer *l); /* a head has a multiple of them as room */
    /* The cells of a head's entries, ascending; *out is released with free. E_NOMEM. */
    int (*list)(const struct wnw__bridge_layer *l, int32_t stream, int32_t ih, int32_t **out, int32_t *n);
    int (*drop)(struct wnw__bridge_layer *l, int32_t stream, int32_t ih, const int32_t *cell, int32_t n);
    /* Drops the entries of cells that are dead, in a layer with one stream. E_NOMEM. */
    int (*forget)(struct wnw__bridge_layer *l, const bool *dead);
    void (*clear)(struct wnw__bridge_layer *l);
    /* An attention's sinks for the host, as long as the layer lives. NULL: no memory. */
    const float *(*sinks)(struct wnw__bridge_layer *l, const struct ggml_tensor *sinks);
    /* Keeps the scores that a gate gives to a cell's entries: score[n_head][stride]. */
    void (*keep_gate)(const struct wnw__bridge_layer *l, int64_t cell, const float *score, int32_t stride);
    /* E_UNSUPPORTED: a policy with these needs wants what cannot be had there. */
    int (*check_policy)(const struct wnw__bridge_backend *b, const wnw_policy *policy,
                        const wnw_needs *needs);
    /* Fetches the entries of a cache's layers into their `rows`. E_NOMEM, E_BACKEND; the caller ends the plan in any case. */
    int (*plan_begin)(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c);
    /* Where rc is WNW_OK, what was changed in `rows` is done on the device; written: also in entries that stay. Returns rc, or the
     * error. */
    int (*plan_end)(struct wnw__bridge_backend *b, int rc, bool written);
    void (*set_n_threads)(struct wnw__bridge_backend *b, int n_threads);
    void (*set_abort_callback)(struct wnw__bridge_backend *b, ggml_abort_callback callback, void *data);
};

#endif
