/* SPDX-License-Identifier: MIT */
/*
 * winnow as a backend of ggml under an unmodified libllama. libllama puts the KV cache of a context on the device of its
 * layers. On winnow's device these tensors are addresses without memory. Keys and values are in winnow's ragged cache,
 * and winnow's attention reads them there. All other nodes of a graph run on a CPU backend that winnow's backend owns.
 *
 * Rooms of this folder; each calls functions of rooms above it in this list alone (scripts/check_layers.sh):
 *
 *     cells/     the memory that libllama asks for, entries by cell, facts of ggml's nodes.
 *     graph/     the part that a node has in a cache, winnow's nodes, products.
 *     sequence/  the entries of a sequence, records of it, its view for a policy.
 *     watch/     the time when a policy acts, and the functions for programs.
 *     drive/     libllama's graphs over the cache of a winnow session.
 *     wrap/      devices around other devices.
 *     device/    registry, device, version gate, the run of a graph.
 *
 * A layer of a cache is taken over (ragged) if every node of its first graph that reads or writes it is known. Otherwise
 * it stays as libllama has it (plain). If a later graph has an unknown node on a ragged layer, the rows are copied to
 * the tensor's addresses, the node runs, and they are copied back.
 */
#ifndef WNW_BRIDGE_H
#define WNW_BRIDGE_H

#include "attend/attend_cells.h"
#include "base/memory.h"
#include "base/shape.h"
#include "cache/cache.h"
#include "forward/matmul.h"
#include "winnow_method.h"

#include <ggml-backend-impl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
    uint8_t *written;         /* [n_stream * n_cell] whether the cell has been written since the last clear */

    struct wnw__wrap_layer
        *wrap; /* on a wrapped device (wrap/wrap.h), which has its entries; NULL: they are in `rows` */
    const struct wnw__bridge_far *far; /* what that device does; NULL: it is none */

    struct wnw__bridge_layer_info info; /* while there is a policy */
    struct wnw__bridge_queries queries; /* that a policy wants to see */
};

/* What is noted of a cell while there is a policy. */
struct wnw__bridge_note {
    int32_t order;      /* of its writing */
    bool alone;         /* no other row of its batch was of its sequence */
    bool seen;          /* a policy has decided on it */
    bool unobserved;    /* nothing else is known of it, because memory ran out */
    bool query_skipped; /* its query is not kept, and no policy will look with it */
};

struct wnw__bridge_cache {
    uint8_t *base; /* reserved addresses, or with `borrowed` the mapping of a file of weights */
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
    int64_t made;      /* when, to compare */
    atomic_int owners; /* the buffer, and every backend that has seen it in a graph */
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
/* Drops all entries and gives their memory back. */
void wnw__bridge_layer_clear(struct wnw__bridge_layer *l);
void wnw__bridge_layer_free(struct wnw__bridge_layer *l);
/* Makes entries in every head of a stream for cells cell[n], which ascend. */
int wnw__bridge_layer_place(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n);
/* Writes the keys (or values) x [n_head][d] of a cell to the heads that have an entry for it. */
void wnw__bridge_layer_write(struct wnw__bridge_layer *l, bool is_v, int32_t stream, int32_t cell,
                             const float *x);
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

/* ---- Notes of nodes (cells/notes.c) ---- */

enum wnw__bridge_what { WNW_BRIDGE_NOT_OURS, WNW_BRIDGE_STORE, WNW_BRIDGE_ATTEND, WNW_BRIDGE_ATTEND_CHAIN };

/* What a node of winnow's computes. An attention has the sources q, keys, values, mask or NULL, sinks or NULL; those after
 * them only keep the order. */
struct wnw__bridge_node {
    int32_t what;
    float scale, cap, max_bias;
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

/* ---- Products (graph/matmul.c) ---- */

struct wnw__bridge_step; /* graph/fuse.h */
struct wnw__bridge_group;

/* Scratch memory of products by our kernels, and the activations of the tensor that was converted last. */
struct wnw__bridge_products {
    struct wnw__matmul_scratch *scratch;
    int32_t n_threads;
    int64_t max_k;
    void *act;
    size_t act_bytes;
    const struct ggml_tensor *converted; /* in the graph that is being made; NULL: none */
    struct wnw__operand input;
    bool has_eps; /* of the norms that products compute */
    float rms_eps;
    struct wnw__bridge_step *steps; /* [n_step] of the nodes of the graph that is being made */
    struct wnw__bridge_group *groups;
    int n_step, cap_step;
    bool unfused; /* for tests: every node is computed by itself */
};

/* Whether products are left to ggml: WINNOW_GGML_PRODUCTS. */
bool wnw__bridge_products_off(void);
/* Whether a product of a weight w, whose buffer is not looked at, is always ours: of one token, too. */
bool wnw__bridge_keeps_weight(const struct ggml_tensor *w);
/* Whether a node is a product that our kernels compute. */
bool wnw__bridge_takes_product(const struct ggml_tensor *node);
/* Makes scratch for such a node. To be called for all of a graph before the first is added. */
int wnw__bridge_products_reserve(struct wnw__bridge_products *p, int32_t n_threads,
                                 const struct ggml_tensor *node);
void wnw__bridge_products_free(struct wnw__bridge_products *p);
/* Adds winnow's nodes in place of some products to a graph. They take memory for two tensors of ctx at most. */
void wnw__bridge_products_add(struct wnw__bridge_products *p, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, const struct wnw__bridge_step *step);

/* ---- Policies (bridge_impl.h) ---- */

/* New cells of a prompt that make a sequence be compressed. */
enum { WNW_BRIDGE_LEAST_NEW = 128 };

struct wnw__bridge_tracks; /* sequence/track.h */
struct wnw__proj;          /* observe/projnorm.h */
struct wnw__team;          /* forward/team.h */

/* An attention of the current graph over a layer that policies act on. */
struct wnw__bridge_site {
    struct wnw__bridge_backend *b;
    struct wnw__bridge_layer *layer;
    struct ggml_tensor *node,
        *rope; /* rope: the node that turns the queries; NULL: there is none, or another layer's */
    /* The nodes that write the layer's keys and make them of what the attention reads (graph/input.c); NULL: there is
     * none, or the attention is another layer's. */
    const struct ggml_tensor *store, *product;
    int32_t reader; /* its number among the layer's attentions */
};

/* What a policy wants to have noted, and what was seen last. */
struct wnw__bridge_watch {
    wnw_registry *registry; /* parts of the program; NULL: none */
    wnw_policy *policy;   /* NULL: nothing is noted */
    char *automatic;      /* what chooses it for each prompt (wnw_automatic); NULL: it is always this one */
    wnw_profile *profile; /* NULL = none */
    wnw_size size;
    wnw_needs needs;
    bool by_itself; /* compresses when a prompt has ended; else when the program says so */
    int32_t chunk;  /* while a prompt is read, too, after this number of tokens; 0: not */
    int32_t chunk_next; /* of policies that are set from now on */
    struct wnw__bridge_sequence_cells {
        struct wnw__bridge_cache *cache; /* NULL: nothing yet */
        int32_t stream, n, room;
        int32_t *cell;    /* [n] of the sequence, in the order in which they were written */
        int32_t n_prefix; /* the first of them, which a policy sees, protects and does not count; mostly 0 */
        const struct wnw_bridge_sample
            *sample;                  /* of what was fed again (sequence/sample.c); NULL: nothing was */
    } last;                           /* the sequence of the last row of the last batch, with that row */
    struct wnw__bridge_site *sites;   /* [n_site] of the current graph, in its order */
    int32_t n_site, cap_site;
    struct wnw__bridge_tracks *tracks; /* statistics of queries; NULL while none are wanted */
    struct wnw__proj *proj[2];         /* of KV heads, of query heads; NULL: no norms were wanted yet */
    struct wnw__buffer gate_room;      /* scratch of gates on hidden states (sequence/gates.c) */
    struct wnw__team *team;            /* threads for planning and dropping; NULL: there is one */
    int32_t team_threads;              /* that the team was asked to have; 0: not yet */
    char told[256];                    /* why the last sequence was left as it is; "": it was not */
    int told_rc;                       /* the status that goes with it */
};

/* ---- The backend ---- */

struct wnw__drive;    /* drive/drive.h */
struct wnw__wrap_run; /* wrap/wrap.h */

struct wnw__bridge_backend {
    ggml_backend_t cpu;
    /* of a wrapped device, which has no cpu; NULL: it is the device WINNOW's */
    struct wnw__wrap_run *wrap;
    const struct wnw__bridge_far *far; /* what that device does; NULL: it is none */
    /* of the same context, while wnw_bridge_find looks for it and after; NULL: no other */
    struct wnw__bridge_backend *other;
    struct wnw__bridge_backend
        *first; /* from which `other` leads to all of the context; NULL: nobody looked */
    /* borrowed: a winnow engine that owns keys and values; NULL: the store here does */
    struct wnw__drive *drive;
    bool drive_inputs; /* a recorder of that engine reads what attentions of the current graph read */
    int32_t n_threads;
    struct wnw__bridge_cache **caches; /* that its graphs had, in that order */
    int32_t n_cache, cap_cache;
    bool plain; /* takes nothing over: WINNOW_PLAIN */
    /* The operation for which layers stay as libllama has them, ggml's name of it; NULL = none. */
    const char *unknown_node;
    /* Of graphs without a cache that is here. */
    struct wnw__bridge_seen {
        bool caches;               /* a cache is in other memory */
        char first[GGML_MAX_NAME]; /* the first node of the first graph, "" = none came */
    } seen;
    struct wnw__bridge_node_notes notes;
    bool ggml_products; /* leaves products to ggml: WINNOW_GGML_PRODUCTS */
    struct wnw__cells_shared *cells;
    struct wnw__bridge_products products;
    struct wnw__bridge_watch watch;
    /* [watch_n_own] cells of the rows of the graph that runs, -1 where the row's query need not be kept */
    int32_t *watch_own;
    int64_t watch_n_own;
    void (*rows_told)(const int32_t *cells, int32_t n, int32_t n_cells,
                      void *user); /* wnw_bridge_tell_rows */
    void *rows_user;
    const struct ggml_tensor *rows_mask; /* of the graph whose rows are reported; NULL: it has
                                            none */
    bool tells;                          /* it reports the rows of its graph now */
    /* [n_skipped] rows of the last batch that was reported whose queries are not kept */
    int32_t *skipped, n_skipped, cap_skipped;
    int32_t *index; /* [cap_index] cells of the current rows */
    int32_t cap_index;
    uint8_t *room; /* memory of the graph that runs */
    size_t room_bytes;
};

ggml_backend_t wnw__bridge_backend_new(ggml_backend_dev_t dev);
void wnw__bridge_set_n_threads(ggml_backend_t backend, int n_threads);
void wnw__bridge_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data);
extern struct ggml_backend_device wnw__bridge_device;
/* Sets *reg to our registry if this process has the ggml that we are built for. E_BACKEND: it has another. */
int wnw__bridge_check(ggml_backend_reg_t *reg);
/* Registers devices around those that WINNOW_DEVICES names (device/register.c). E_ARG: a name is unknown. */
int wnw__bridge_wrap_named(ggml_backend_reg_t reg);
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
    /* The layer's heads say from now on what it has. E_NOMEM. */
    int (*begin_rows)(struct wnw__bridge_layer *l);
    int64_t (*entries)(const struct wnw__bridge_layer *l);
    uint64_t (*bytes)(const struct wnw__bridge_layer *l);
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

/* ---- Nodes ---- */

/* Notes that a graph has the cache. */
int wnw__bridge_backend_see(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c);

/* A flash attention over a layer of a cache. */
struct wnw__bridge_flash {
    struct ggml_tensor *node, *q, *k, *v, *mask, *sinks;
    struct wnw__bridge_layer *layer;
    struct wnw__bridge_shape shape;
    struct wnw__bridge_node what; /* as an operation of winnow's */
};
/* Whether a node is one (graph/graph.c). */
bool wnw__bridge_flash_of(struct ggml_tensor *node, struct wnw__bridge_flash *out);
/* Whether a node writes rows of all heads to the tensor. */
bool wnw__bridge_is_row_store(const struct ggml_tensor *node, const struct wnw__bridge_tensor *t);
/* The first cache tensor that a node reads or writes; NULL: none, or it is only a view. */
struct wnw__bridge_tensor *wnw__bridge_touched(const struct ggml_tensor *node);
/* Marks every layer that a node reads or writes as one with a node that is not known. */
void wnw__bridge_mark_unknown(const struct ggml_tensor *node);
/* Whether a layer was taken with this shape. */
bool wnw__bridge_has_shape(const struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape);

/* Decides what is ragged and makes nodes on ragged layers ours (graph/graph.c). */
void wnw__bridge_graph_take(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Whether that was done: where memory ran out, the graph would read and write other memory than its cache. */
bool wnw__bridge_graph_is_taken(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* The first stream that the keys of an attention, a view of a cache, are of. */
int32_t wnw__bridge_first_stream(const struct ggml_tensor *k);
/* Whether a node only gives another shape to its source. */
bool wnw__bridge_is_view(const struct ggml_tensor *node);
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

/* Takes away what was noted of earlier nodes at the addresses of a graph's (graph/nodes.c). */
void wnw__bridge_nodes_begin(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* The function of a custom operation, which ggml keeps first. */
ggml_custom_op_t wnw__bridge_custom_function(const struct ggml_tensor *node);
/* Makes a node an operation of winnow's. */
void wnw__bridge_node_set(struct wnw__bridge_backend *b, struct ggml_tensor *node,
                          const struct wnw__bridge_node *what);
/* .what is WNW_BRIDGE_NOT_OURS where it is none. */
struct wnw__bridge_node wnw__bridge_node_get(const struct wnw__bridge_backend *b,
                                             const struct ggml_tensor *node);
/* Rows that a store writes, and the cell, counted over all streams, of row i (cells/cells.c). */
int64_t wnw__bridge_store_rows(const struct ggml_tensor *node);
int64_t wnw__bridge_store_cell(const struct ggml_tensor *node, int64_t i);
/* What a node that is an attention computes. */
struct wnw__cells_op wnw__bridge_attention(const struct wnw__bridge_backend *b,
                                           const struct ggml_tensor *node);
/* Before the graph runs: makes entries for the cells that a store writes, or scratch for an attention. */
int wnw__bridge_node_prepare(struct wnw__bridge_backend *b, const struct ggml_tensor *node);

/* For wnw_bridge_find: a program has libllama synchronise this backend (watch/access.c). */
void wnw__bridge_called(struct wnw__bridge_backend *b);

/* Tells the program where the rows of a graph go (watch/rows.c). */
void wnw__bridge_rows_tell(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);

enum ggml_status wnw__bridge_graph_run(struct wnw__bridge_backend *b,
                                       struct ggml_cgraph *graph); /* device/run.c */

#endif
