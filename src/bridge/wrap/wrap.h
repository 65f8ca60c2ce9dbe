/* SPDX-License-Identifier: MIT */
/*
 * Our devices around other devices of ggml. WINNOW0 is around the first one that is named, WINNOW1 around the next.
 * What is said here of a device X is the one inside.
 *
 *     wrap/wrap.c:         devices and their registration
 *     wrap/wrap_find.c:    which devices are such ones
 *     wrap/wrap_remote.c:  devices of other machines
 *     wrap/wrap_ask.c:     what they compute
 *     wrap/wrap_connect.c: connections to their servers
 *     wrap/wrap_guard.c:   a relay, so that a server that is lost does not end the process
 *     wrap/wrap_ahead.c:   what the relay reads before it is asked for it
 *     wrap/wrap_again.c:   graphs that a server has
 *     wrap/wrap_buffer.c:  memory that libllama asks for
 *     wrap/wrap_rect.c:    keys and values in libllama's own layout
 *     wrap/wrap_rows.c:    keys and values of ragged layers
 *     wrap/wrap_look.c:    what a graph does with the layers of a cache
 *     wrap/wrap_can.c:     whether X computes ragged layers
 *     wrap/wrap_graph.c:   graphs with attention over ragged layers
 *     wrap/wrap_point.c:   their tensors get memory
 *     wrap/wrap_run.c:     a graph runs
 *     wrap/wrap_host.c:    what the host reads of X's memory
 *     wrap/wrap_watch.c:   policies: what the host looks at in a graph
 *     wrap/wrap_taps.c:    policies: numbers that X computes on the way
 *     wrap/wrap_gates.c:   policies: gates on hidden states, on X
 *     wrap/wrap_mirror.c:  policies: a plan, and what it changes
 *
 * Weights and activations are in buffers of X, which X made. Keys and values get addresses without memory. A layer is
 * rectangular as long as nothing of it was dropped. Its rows are then in a buffer of X that grows with what is used, in
 * libllama's layout, and X computes libllama's graph as it is. Once entries were dropped, the layer is ragged. Each head
 * then has rows of its own in a smaller buffer of X, and X computes our graph.
 */
#ifndef WNW_BRIDGE_WRAP_H
#define WNW_BRIDGE_WRAP_H

#include "bridge/graph/graph.h"

#include <pthread.h>

/* ---- Devices ---- */

enum { WNW_WRAP_INPUTS = 64 };

struct wnw__guard; /* wrap/wrap_guard.h */

/* A copy of what was written to a buffer of X. */
struct wnw__wrap_input {
    const void *at; /* where X has it; NULL: nothing */
    void *copy;     /* [n] bytes; NULL: none, but what is written there is wanted */
    size_t n;
};

/* The last graph that a server got of a device. */
struct wnw__wrap_sent {
    pthread_mutex_t lock;
    uint64_t what;       /* under `lock`; 0: nobody knows */
    unsigned connection; /* to the server */
    struct ggml_cgraph *in_place;
};

/* One device. It lives as long as the process, as ggml's registry has it. */
struct wnw__wrap {
    struct ggml_backend_device dev; /* first, so that ggml's pointer is ours */
    struct ggml_backend_buffer_type type;
    ggml_backend_dev_t x;
    ggml_backend_buffer_type_t xt;
    char name[24], description[192];
    bool remote;              /* X is of another machine */
    struct wnw__guard *guard; /* of X's server; NULL: there is none */
    enum ggml_status (*compute)(ggml_backend_t backend,
                                struct ggml_cgraph *graph); /* where guarded; under `lock` */
    int32_t pad;       /* heads of ragged layers have multiples of it as capacity */
    atomic_uint freed; /* buffers of X that were freed here: a server may have forgotten its graph */
    struct wnw__wrap_sent sent;
    pthread_mutex_t lock;
    /* Numbers of cells that were written to X, and masks, newest copies; under `lock`. */
    struct wnw__wrap_input inputs[WNW_WRAP_INPUTS];
    int32_t next;
    void (*set_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                       size_t size); /* X's own; NULL: its memory is the host's, and nothing is copied */
};

/* The name of such a device. All have this function, by which they are known. */
const char *wnw__wrap_name(ggml_backend_dev_t dev);
/* The device that a device of ggml's is; NULL: it is no such one. */
struct wnw__wrap *wnw__wrap_of(ggml_backend_dev_t dev);
/* Makes devices around those that `names` lists, with commas, and registers them. E_ARG: a name is unknown, or is given
 * twice; the sentence lists those that are there. */
int wnw__wrap_register(const char *names, ggml_backend_reg_t reg);

/* What users know X by: a worker's address, or X's own name. */
const char *wnw__wrap_x_name(const struct wnw__wrap *w);

/* ---- What X computes (wrap/wrap_ask.c) ---- */

/* Whether X computes an operation. A worker of winnow is asked what its device says; of another server nobody knows, and the answer is yes.
 * X's server is waited for once for each such operation, and shape. */
bool wnw__wrap_supports(const struct wnw__wrap *w, const struct ggml_tensor *op);
/* Whether X is more than a CPU. A server that is none of winnow's does not say; then it is one whose tensors begin where a CPU's need not. */
bool wnw__wrap_is_gpu(const struct wnw__wrap *w);

/* A device for ggml's server, which computes what x does, and answers these questions. */
struct wnw__wrap_served {
    struct ggml_backend_device dev; /* first, so that ggml's pointer is ours */
    struct ggml_backend_buffer_type type;
    ggml_backend_dev_t x;
    ggml_backend_buffer_type_t xt;
};
void wnw__wrap_served_init(struct wnw__wrap_served *s, ggml_backend_dev_t x);

/* What wnw_bridge_worker does once our devices are registered. */
int wnw__wrap_serve(const char *address, const char *device, int32_t n_threads);
/* Has ggml know the devices of an RPC server (wrap/wrap_remote.c). E_BACKEND. */
int wnw__wrap_remote(struct wnw__guard *g, ggml_backend_reg_t *out);

/* ---- Memory (wrap/wrap_buffer.c) ---- */

void wnw__wrap_buffer_type_init(struct wnw__wrap *w);
/* The device whose addresses of keys and values t's are; NULL: it is no such tensor or view. */
struct wnw__wrap *wnw__wrap_of_cache(const struct ggml_tensor *t);
/* Notes what is written to X: numbers of cells, and what is wanted. */
void wnw__wrap_note(struct wnw__wrap *w, const struct ggml_tensor *t, const void *data, size_t offset,
                    size_t size);
/* Numbers of cells [n] that a graph has as its input. They are in the host's memory, were noted, or are read from X. E_NOMEM;
 * *out is released with free. */
int wnw__wrap_cells(int64_t **out, struct wnw__wrap *w, const struct ggml_tensor *index);
/* The same of any input of a graph that is to be computed. An input at that place is noted from then on. */
int wnw__wrap_input_read(void **out, struct wnw__wrap *w, const struct ggml_tensor *t);

/* ---- A layer ---- */

/* Entries of one head of one stream. */
struct wnw__wrap_head {
    int32_t *cell; /* [n] ascending */
    int64_t *row;  /* [n] of the storage in which they are */
    int32_t n, room;
    int64_t off;       /* its first row, once the layer is settled */
    int32_t cap, used; /* rows reserved; the first that were given out */
};

struct wnw__wrap_layer {
    struct wnw__wrap *w;
    /* One buffer. Rectangular: rows of all heads of a cell, then the next cell, values after keys. Ragged: keys, values and
     * seen numbers, heads one after the other. */
    ggml_backend_buffer_t buffer;
    size_t v_at, c_at; /* where values begin, and numbers */
    unsigned n_made;   /* how many buffers it has had: one may be where another one was */
    int64_t rows;      /* of all heads of a cell; settled: of one head */
    bool ragged;       /* heads say what is there */
    bool
        settled; /* the buffer has the ragged form; else it is rectangular, and rows of heads are counted there */
    bool told;  /* what became of the layer was logged */
    bool stale; /* the numbers of rows on X are to be written again */
    bool holes; /* rows that were written to a rectangular layer may have parts of dropped entries */
    struct wnw__wrap_head *heads; /* [n_stream * n_head] */
    ggml_backend_t mover;         /* computes copies on X; NULL until the first */
    ggml_backend_t user;          /* of X, which may still compute with the buffer; NULL: none does */
    /* Of every cell in every head [n_stream * n_cell][n_head], for policies; NULL: nothing was kept. Scores of gates on hidden
     * states, NAN where there is none; and whether a recursive policy has settled the entry. */
    float *gate, *settled_marks;
    /* of the attention that they received [n_stream * n_cell][query heads]; NULL: none were kept */
    float *sums;
    float *sinks; /* the host's copy of the attention's; NULL: none */
};

/* Where a tensor of the layer begins in its buffer. */
uint8_t *wnw__wrap_layer_at(const struct wnw__wrap_layer *w, bool is_v);
/* Makes room for a layer's state. E_NOMEM. */
int wnw__wrap_layer_new(struct wnw__bridge_layer *l, struct wnw__wrap *w);
/* Makes sure that l->written is there, which says what cells were written. E_NOMEM. */
int wnw__wrap_layer_note(struct wnw__bridge_layer *l);
/* Waits until no graph on X computes with the layer's buffer: what reads, writes or frees memory of X does not wait for graphs. */
void wnw__wrap_layer_wait(struct wnw__wrap_layer *w);
/* Drops all that it has, with its memory on X. */
void wnw__wrap_layer_clear(struct wnw__bridge_layer *l);
void wnw__wrap_layer_free(struct wnw__bridge_layer *l);
/* A new buffer of X, all 0. E_NOMEM: X has no memory for it. */
int wnw__wrap_buffer_new(ggml_backend_buffer_t *out, struct wnw__wrap *w, size_t bytes);
/* How often that was on all devices: a server forgets the graphs of all of its own. */
unsigned wnw__wrap_frees(void);
/* Notes that buffers of X were freed, or may have been. */
void wnw__wrap_freed(struct wnw__wrap *w);
/* Makes *t n bytes of a buffer of X. */
void wnw__wrap_bytes_at(struct ggml_tensor *t, ggml_backend_buffer_t buffer, uint8_t *at, size_t n);
void wnw__wrap_buffer_drop(struct wnw__wrap *w, ggml_backend_buffer_t buffer);
/* `bytes` rounded up to what X's tensors are aligned to. */
size_t wnw__wrap_align(const struct wnw__wrap *w, size_t bytes);
/* Bytes of rows of d numbers of keys or values up to the next tensor; 0: the layer has none. CUDA writes zeros after a quantised tensor where
 * it is placed, and reads there. */
size_t wnw__wrap_place_bytes(const struct wnw__wrap *w, const struct wnw__bridge_tensor *t, int64_t d,
                             int64_t rows);
/* Bytes that the result of a node takes on X. */
size_t wnw__wrap_result_bytes(const struct wnw__wrap *w, const struct ggml_tensor *t);

/* ---- Rectangular (wrap/wrap_rect.c) ---- */

/* Makes room for the first `rows` cells, counted over all streams. E_NOMEM. */
int wnw__wrap_rect_grow(struct wnw__bridge_layer *l, int64_t rows);
/* Bytes at .. at+n-1 of a tensor, in libllama's layout: read, or written. */
int wnw__wrap_rect_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst);
int wnw__wrap_rect_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src);

/* ---- Ragged (wrap/wrap_rows.c) ---- */

/* The layer's heads say from now on what it has: entries of all cells that were written, except parts of dropped entries.
 * E_NOMEM. */
int wnw__wrap_rows_begin(struct wnw__bridge_layer *l);
/* The same where rows that were written may have parts of dropped entries, and in a tight cache: the memory of ragged layers alone follows
 * their entries. */
int wnw__wrap_find_holes(struct wnw__bridge_layer *l);
/* The first entry of a head whose cell is at least `cell`. */
int32_t wnw__wrap_find(const struct wnw__wrap_head *h, int32_t cell);
/* Brings the rows into the ragged form where they are not, with room for n more in every head of streams from .. to-1, and
 * gives back memory that is no longer needed. E_NOMEM. */
int wnw__wrap_rows_settle(struct wnw__bridge_layer *l, int32_t from, int32_t to, int32_t n);
/* Makes an entry of a cell in every head of a stream that has none; row[n_head] are their rows. There is room. */
int wnw__wrap_rows_place(struct wnw__bridge_layer *l, int32_t stream, int32_t cell, int32_t *row);
/* Removes entries of cells from `n_cell` on: no token is in these cells. */
void wnw__wrap_rows_cut(struct wnw__bridge_layer *l, int32_t stream, int32_t n_cell);
int wnw__wrap_rows_drop(struct wnw__bridge_layer *l, int32_t stream, int32_t ih, const int32_t *cell,
                        int32_t n);
/* Writes the numbers of all rows to X. */
int wnw__wrap_rows_show(struct wnw__bridge_layer *l);
/* As wnw__bridge_tensor_read and wnw__bridge_tensor_write. */
int wnw__wrap_rows_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst);
int wnw__wrap_rows_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src);
/* Brings all rows of a settled layer to libllama's layout, in which X computes nodes that we do not know. E_NOMEM. */
int wnw__wrap_rows_spread(struct wnw__bridge_layer *l);

/* Reads all rows of keys or values; *out is released with free. E_NOMEM. */
int wnw__wrap_rows_fetch(const struct wnw__bridge_layer *l, bool is_v, uint8_t **out);
/* Writes the keys and values of all entries, which the host's cache l->rows has in the same order. E_NOMEM. */
int wnw__wrap_rows_put(struct wnw__bridge_layer *l);
/* Drops the entries of cells that are dead, in a layer with one stream. E_NOMEM. */
int wnw__wrap_forget(struct wnw__bridge_layer *l, const bool *dead);

/* What programs see of a layer (winnow_bridge.h). */
int64_t wnw__wrap_entries(const struct wnw__bridge_layer *l);
uint64_t wnw__wrap_bytes(const struct wnw__bridge_layer *l);
int32_t wnw__wrap_room_entries(const struct wnw__bridge_layer *l);
/* The cells of a head's entries, ascending; *out is released with free. E_NOMEM. */
int wnw__wrap_list(const struct wnw__bridge_layer *l, int32_t stream, int32_t ih, int32_t **out, int32_t *n);

/* ---- Graphs ---- */

/* A node on a layer, with a tensor of that: a store of rows, or any node. */
struct wnw__wrap_store {
    struct ggml_tensor *node;
    struct wnw__bridge_tensor *t;
};

/* What a graph does with layers. Lists are the backend's, and are valid until it looks at another graph. */
struct wnw__wrap_look {
    struct ggml_cgraph *graph;
    struct wnw__bridge_flash *flash; /* [n_flash] */
    struct wnw__wrap_store *stores;  /* [n_store] */
    struct wnw__wrap_store *touched; /* [n_touched] all nodes on layers but views */
    int32_t n_flash, n_store, n_touched;
    uint64_t number;                   /* another one for each graph that is not the last one again */
    bool ragged;                       /* it writes or attends to a ragged layer */
    const struct wnw__wrap_taps *taps; /* that are added to it; NULL: none */
    /* whose policy wants to know what entries receive; NULL: nobody does */
    const struct wnw__bridge_backend *sums_for;
};

/* E_UNSUPPORTED: X cannot compute a layer once it is ragged, `sums`: with what a policy wants to know of all attention. E_NOMEM. */
int wnw__wrap_can(struct wnw__wrap *w, const struct wnw__bridge_flash *f, bool sums);
/* E_UNSUPPORTED: X does not write rows to keys or values such as t, as libllama has it do. ggml would end the process. E_NOMEM. */
int wnw__wrap_can_store(struct wnw__wrap *w, const struct ggml_tensor *t);
/* Decides what layers may become that no graph had before: of one that is not computed yet (wrap/wrap_look.c). */
void wnw__wrap_decide(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* The same of a graph that is about to be computed, and looks at it. E_NOMEM, E_UNSUPPORTED. */
int wnw__wrap_look(struct wnw__wrap_look *look, struct wnw__bridge_backend *b, struct ggml_cgraph *graph);

/* ---- The backend ---- */

/* A tensor that points to a copy. */
struct wnw__wrap_shown {
    struct ggml_tensor *t;
    void *data, *copy; /* where X has it; the host's */
};
struct wnw__wrap_host {
    struct wnw__wrap_shown *list;
    int32_t n, cap;
    bool shown; /* tensors point to their copies now */
};

struct wnw__wrap_memory {
    ggml_backend_buffer_t buffer;
    size_t size;
};

/* Memory of the host that stays from one graph to the next: a server keeps a graph, and needs it only once as long as its nodes are at the
 * same addresses (wrap/wrap_guard.c). */
struct wnw__wrap_block {
    void *at;
    size_t size;
};

/* A graph that libllama's scheduler has numbered. */
struct wnw__wrap_numbered {
    const struct ggml_tensor *first; /* node */
    uint64_t places;                 /* of its rows, when X got it by its number; 0: X did not */
};

/* What was found in the graph that was looked at last. libllama computes one graph for many tokens (graph/again.c). */
struct wnw__wrap_found {
    struct wnw__wrap_look look;
    struct wnw__wrap_block flash, stores, touched; /* its lists */
    bool holds;                                    /* for the graph, when it comes again */
    uint64_t noted; /* the number of the graph whose nodes were noted for policies; 0: none */
};

/* A tensor of libllama's that points to X's memory, as it was. */
struct wnw__wrap_pointed_at {
    struct ggml_tensor *t;
    const struct wnw__bridge_tensor *mine;
    size_t at, end; /* bytes of the layer's, when the graph was collected */
    size_t row;     /* of a cell */
    int64_t rows;   /* that are reached */
    bool twice;     /* it is in the list already */
    ggml_backend_buffer_t buffer;
    void *data;
    int64_t ne1, ne2;
};

/* Those of a graph. */
struct wnw__wrap_points {
    struct wnw__wrap_pointed_at *list; /* [n] */
    size_t n, cap;
    uint64_t key; /* of the graph that they are of; 0: of none */
};

struct wnw__wrap_made; /* wrap/wrap_graph.c */

struct wnw__wrap_run {
    struct wnw__wrap *w;
    ggml_backend_t x;
    uint64_t id;    /* another one for each */
    bool computing; /* a graph, or what comes before */
    unsigned freed; /* of the device, when X last got a graph with a number of its own */
    bool at_once;   /* layers are ragged from their first token: WINNOW_RAGGED_AT_ONCE */
    struct wnw__wrap_found found;
    struct wnw__wrap_points points;
    struct wnw__wrap_made *made; /* our graph that was made last, in `nodes`; NULL: none */
    uint64_t made_key;           /* of what it was made; 0: it does not come again */
    uint64_t n_memory;           /* how often memory of our graphs was made */
    char no_sums[256]; /* what X lacks for policies that sum up attention; "": nothing that is known */
    struct wnw__wrap_memory kept, scratch, packed, sums, taps; /* of our graphs */
    struct wnw__wrap_memory gates;                             /* tables of gates on hidden states */
    bool gates_on_x;                                           /* X computes their products */
    const float *gates_of;                                     /* the numbers that were sent; NULL: none */
    uint64_t gates_profile;                                    /* and the profile's count */
    struct wnw__wrap_block nodes, tap_nodes;                   /* and their nodes */
    struct wnw__wrap_numbered numbered[256];                   /* by the address of their first node */
    struct wnw__bridge_cache *planned; /* whose entries the host has for a plan; NULL: none */
    struct wnw__wrap_host plan_host;   /* and weights that it reads for that */
};

/* Makes room, or gives back most of it; contents are lost then. E_NOMEM. */
int wnw__wrap_memory_need(struct wnw__wrap_run *r, struct wnw__wrap_memory *m, size_t size);
/* Reads its first n bytes; *out stays NULL where the host reads X's memory, and is released with free. E_NOMEM. */
int wnw__wrap_memory_read(struct wnw__wrap_run *r, const struct wnw__wrap_memory *m, size_t n, uint8_t **out);
/* At least `size` bytes, whose contents are lost where it grows. NULL: no memory. */
void *wnw__wrap_block_need(struct wnw__wrap_block *b, size_t size);
/* Has X compute the graph of `look`, whose ragged layers are settled, with our attention (wrap/wrap_graph.c). */
enum ggml_status wnw__wrap_graph_run(struct wnw__wrap_run *r, struct wnw__wrap_look *look);
/* The same of a graph without ragged layers, with what is copied for a policy. */
enum ggml_status wnw__wrap_graph_tapped(struct wnw__wrap_run *r, const struct wnw__wrap_look *look);
/* A graph for n nodes, without a number. It lives until the next one. NULL: no memory. */
struct ggml_cgraph *wnw__wrap_graph_new(struct wnw__wrap_run *r, int n);
/* libllama's scheduler is about to number the graph. */
void wnw__wrap_numbered(struct wnw__wrap_run *r, struct ggml_cgraph *graph);
/* Has X compute a graph. what: another one where the graph is another one, or has other tensors; 0: nobody knows. */
enum ggml_status wnw__wrap_compute(struct wnw__wrap *w, ggml_backend_t x, struct ggml_cgraph *graph,
                                   uint64_t what);
/* Points the graph's tensors of rectangular layers to their memory on X, has X compute `run`, and points them back. `run` has the same nodes, and
 * may be the graph itself. key: another one where the nodes, or tensors that they have, are others; 0: nobody knows. */
enum ggml_status wnw__wrap_pointed(struct wnw__wrap_run *r, const struct wnw__wrap_look *look,
                                   struct ggml_cgraph *run, uint64_t key);
void wnw__wrap_points_free(struct wnw__wrap_points *p);
void wnw__wrap_made_free(struct wnw__wrap_made *m);

/* ---- Policies ---- */

/* Reads a tensor, unless the host reads X's memory; NULL: nothing. X has computed what it is read for. E_NOMEM. */
int wnw__wrap_host_add(struct wnw__wrap_host *h, struct wnw__wrap *w, const struct ggml_tensor *t);
/* Points tensors to the copies, or back. */
void wnw__wrap_host_show(struct wnw__wrap_host *h, bool shown);
/* Points tensors back, and frees the copies. */
void wnw__wrap_host_free(struct wnw__wrap_host *h);
/* An attention's sinks for the host, as long as the layer lives. NULL: no memory. */
const float *wnw__wrap_sinks(struct wnw__bridge_layer *l, const struct ggml_tensor *sinks);

/* Copies of numbers of a graph that the policy of a backend reads (wrap/wrap_taps.c). */
struct wnw__wrap_taps;
/* Those of the graph that was looked at last. *out is NULL where nothing is to be copied. E_NOMEM. */
int wnw__wrap_taps_new(struct wnw__wrap_taps **out, struct wnw__bridge_backend *b);
void wnw__wrap_taps_free(struct wnw__wrap_taps *t);
int32_t wnw__wrap_taps_count(const struct wnw__wrap_taps *t);
/* Another one where copies are of other tensors, or elsewhere; 0: there are none. */
uint64_t wnw__wrap_taps_key(const struct wnw__wrap_taps *t);
/* Adds the copies that come before a node; the caller then adds that. */
void wnw__wrap_taps_add(const struct wnw__wrap_taps *t, struct ggml_cgraph *graph,
                        const struct ggml_tensor *before);
/* Gives what X has copied to what keeps it. E_NOMEM. */
int wnw__wrap_taps_take(const struct wnw__wrap_taps *t, struct wnw__bridge_backend *b);

/* Decides whether X computes gates on hidden states (wrap/wrap_gates.c), and sends their tables there where they are others. X computes nothing
 * meanwhile. E_NOMEM. */
int wnw__wrap_gates_need(struct wnw__bridge_backend *b);
/* The product of a layer's table with hidden states x, which has no memory yet: one number for each KV head and token. */
struct ggml_tensor *wnw__wrap_gates_product(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                                            const struct wnw__bridge_layer *l, struct ggml_tensor *x);
/* Keeps the scores of n tokens with their entries. E_NOMEM. */
int wnw__wrap_gates_keep(struct wnw__bridge_backend *b, const struct wnw__bridge_site *p,
                         const float *products, int64_t n);

/* A graph that the host has looked at. */
struct wnw__wrap_watched {
    struct wnw__wrap_host host;
    struct wnw__wrap_taps *taps;
    bool watched;
};
/* E_UNSUPPORTED: a policy with these needs wants what cannot be had on a wrapped device. */
int wnw__wrap_check_policy(const struct wnw__bridge_backend *b, const wnw_policy *policy,
                           const wnw_needs *needs);
/* Looks at a graph that is about to be computed, and compresses sequences that it is time for: layers may be ragged afterwards. E_NOMEM;
 * the caller ends it in any case. */
int wnw__wrap_watch(struct wnw__wrap_watched *out, struct wnw__bridge_backend *b,
                    const struct wnw__wrap_look *look);
/* After the graph. E_NOMEM: the policy has not seen all. */
int wnw__wrap_watch_end(struct wnw__wrap_watched *watched, struct wnw__bridge_backend *b, bool computed);

/* Functions of struct wnw__bridge_far (wrap/wrap_mirror.c). */
int wnw__wrap_mirror_begin(struct wnw__bridge_backend *b, struct wnw__bridge_cache *c);
int wnw__wrap_mirror_end(struct wnw__bridge_backend *b, int rc, bool written);
/* Makes memory for the scores of a layer, before several threads keep some. Without memory none are kept. */
void wnw__wrap_need_gates(const struct wnw__bridge_layer *l);
void wnw__wrap_keep_gate(const struct wnw__bridge_layer *l, int64_t cell, const float *score, int32_t stride);
/* Whether the backend's policy wants to know what entries receive of all queries. Then its layers are ragged from their first token on. */
bool wnw__wrap_wants_sums(const struct wnw__bridge_backend *b);
/* Adds what cap rows from `off` on of a head received, sum[group][cap]. The head is counted over all streams. E_NOMEM. */
int wnw__wrap_add_sums(struct wnw__bridge_layer *l, int32_t head, int64_t off, int64_t cap, const float *sum);
/* Forgets what was kept of n cells, counted over all streams. */
void wnw__wrap_renew(const struct wnw__bridge_layer *l, int64_t cell, int64_t n);

/* What the files of the device WINNOW call (wrap/wrap_run.c). */
extern const struct wnw__bridge_far wnw__wrap_far;
ggml_backend_t wnw__wrap_backend_new(struct wnw__wrap *w);
/* A function of X's registry by its name; false: there is none. */
bool wnw__wrap_function(const struct wnw__wrap *w, const char *name, void (**fn)(void));
/* A backend of X that moves rows; NULL: X cannot be used. */
ggml_backend_t wnw__wrap_mover(struct wnw__wrap *w);

#endif
