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
 * Each room has a header, ROOM/ROOM.h, with what others may call. This one has the state that rooms share, and no function.
 *
 * A layer of a cache is taken over (ragged) if every node of its first graph that reads or writes it is known. Otherwise
 * it stays as libllama has it (plain). If a later graph has an unknown node on a ragged layer, the rows are copied to
 * the tensor's addresses, the node runs, and they are copied back.
 */
#ifndef WNW_BRIDGE_H
#define WNW_BRIDGE_H

#include "base/memory.h"
#include "base/shape.h"
#include "bridge/cells/cells.h"
#include "forward/matmul.h"

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
    struct wnw__bridge_planned {
        bool valid; /* steps[n_step] are those of a part of the graph that runs, with these settings */
        int from, to, n_product, n_norm;
        int32_t n_threads;
        bool observed, unfused;
    } planned;
    bool unfused; /* for tests: every node is computed by itself */
    /* a layout of ggml's in which weights are multiplied with many tokens; NULL: none */
    ggml_backend_buffer_type_t by_eight;
};

/* ---- The graph that ran last (graph/again.c) ---- */

/* libllama runs one graph for many tokens. What was found in a graph is kept until another one runs. */
struct wnw__bridge_last {
    const struct ggml_tensor **node; /* [n] its nodes */
    int n, cap;
    uint64_t hash; /* of what they are */
    bool shown;    /* a scheduler shows the graphs that it allocates */
    bool known;    /* it can be recognised: none was allocated since */
    bool again;    /* the graph that runs is this one */
    bool looked;   /* the following are known */
    int *ours;     /* [n_ours] numbers of the nodes that are winnow's */
    int n_ours, cap_ours;
    bool strangers; /* a node that is not ours reads or writes a ragged layer */
};

/* ---- Policies ---- */

struct wnw__bridge_tracks; /* sequence/track.h */
struct wnw__proj;          /* observe/projnorm.h */
struct wnw__team;          /* forward/team.h */
struct wnw__bridge_backend;

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
    wnw_policy *policy;     /* NULL: nothing is noted */
    char *automatic;        /* what chooses it for each prompt (wnw_automatic); NULL: it is always this one */
    wnw_profile *profile;   /* NULL = none */
    wnw_size size;
    wnw_needs needs;
    bool by_itself;     /* compresses when a prompt has ended; else when the program says so */
    int32_t chunk;      /* while a prompt is read, too, after this number of tokens; 0: not */
    int32_t chunk_next; /* of policies that are set from now on */
    struct wnw__bridge_sequence_cells {
        struct wnw__bridge_cache *cache; /* NULL: nothing yet */
        int32_t stream, n, room;
        int32_t *cell;    /* [n] of the sequence, in the order in which they were written */
        int32_t n_prefix; /* the first of them, which a policy sees, protects and does not count; mostly 0 */
        const struct wnw_bridge_sample
            *sample; /* of what was fed again (sequence/sample.c); NULL: nothing was */
        int32_t n_settled,
            settles; /* first entries that are settled at least; and those of a plan that was applied */
    } last;          /* the sequence of the last row of the last batch, with that row */
    struct wnw__bridge_site *sites; /* [n_site] of the current graph, in its order */
    int32_t n_site, cap_site;
    bool several;                      /* sequences were seen since the policy was set */
    bool sites_known;                  /* the sites are those of the last graph, which can be recognised */
    struct wnw__bridge_tracks *tracks; /* statistics of queries; NULL while none are wanted */
    struct wnw__proj *proj[2];         /* of KV heads, of query heads; NULL: no norms were wanted yet */
    struct wnw__buffer gate_room;      /* scratch of gates on hidden states (sequence/gates.c) */
    uint64_t n_profile;                /* how often the profile was another one */
    /* Called by the first thread of an attention that is about to run; NULL: no queries are kept. */
    void (*on_attention)(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                         const struct wnw__cells_op *op);
    struct wnw__team *team; /* threads for planning and dropping; NULL: there is one */
    int32_t team_threads;   /* that the team was asked to have; 0: not yet */
    char last_warning[256]; /* why the last sequence was left as it is; "": it was not */
    int last_rc;            /* the status that goes with it */
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
    bool tight; /* its caches are (wnw_bridge_set_tight) */
    bool plain; /* takes nothing over: WINNOW_PLAIN */
    /* The operation for which layers stay as libllama has them, ggml's name of it; NULL = none. */
    const char *unknown_node;
    char refused[200]; /* why a device that is wrapped cannot have layers otherwise, "" = it can */
    /* Of graphs without a cache that is here. */
    struct wnw__bridge_seen {
        bool caches;               /* a cache is in other memory */
        char first[GGML_MAX_NAME]; /* the first node of the first graph, "" = none came */
    } seen;
    struct wnw__bridge_node_notes notes;
    struct wnw__bridge_last last;
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
    uint8_t *room; /* memory of the following */
    size_t room_bytes;
    /* The nodes that run in place of those of a graph, or a part of it. They are kept for when it runs again. */
    struct wnw__bridge_running {
        struct ggml_context *ctx; /* NULL: there are none */
        struct ggml_cgraph *nodes;
    } running;
};

/* The device WINNOW (device/device.c). */
extern struct ggml_backend_device wnw__bridge_device;

#endif
