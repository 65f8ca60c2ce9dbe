/* SPDX-License-Identifier: MIT */
/*
 * winnow as a backend of ggml, for programs that run models with libllama: a device WINNOW, whose KV cache is ours.
 * A program either loads libggml-winnow.so as any backend of ggml (GGML_BACKEND_PATH, ggml_backend_load) or, where it
 * links libwinnow, calls wnw_bridge_register. Then it gives libllama the device, and all layers to it:
 *
 *     wnw_bridge_register();
 *     ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("WINNOW"), NULL};
 *     struct llama_model_params params = llama_model_default_params();
 *     params.devices = devices;
 *     params.n_gpu_layers = -1;
 *
 * docs/use/llama-cpp.md says what becomes of a model's cache, and what the environment can set.
 */
#ifndef WINNOW_BRIDGE_H
#define WINNOW_BRIDGE_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the device WINNOW with the ggml that this process has. Calling it again does nothing.
 * E_BACKEND: this ggml is another version than the one that the backend was built for, or has no CPU backend.
 * E_UNSUPPORTED: winnow was built without the backend. E_ARG and others: what the environment sets is no policy (see
 * wnw_bridge_set_policy). Not to be called while another thread uses ggml's registry. */
WNW_API int wnw_bridge_register(void);

/* Loads modules of ggml with further devices, such as libggml-vulkan.so, which must be of this ggml's version: the files that the
 * environment's WINNOW_GGML_MODULES names, with colons between. wnw_bridge_register does it, too. Loaded files stay. E_IO: a file cannot be
 * read; E_BACKEND: ggml cannot load it; E_NOMEM. Not to be called while another thread uses ggml's registry. */
WNW_API int wnw_bridge_load_modules(void);

/* Makes devices around other devices of this ggml, and registers them: WINNOW0 around the first of `names`, which commas
 * separate, WINNOW1 around the next ("CPU", "rpc:127.0.0.1:50052"; one around each device of a server). Weights, keys and values are in their memory, and they compute.
 * wnw_bridge_register makes those that the environment's WINNOW_DEVICES names. docs/use/devices.md says what they do. E_ARG: there is no
 * such device, or it is named twice; the sentence lists those that are there. E_BACKEND: no server of this ggml's version answers at an address. Other errors
 * are those of wnw_bridge_register. */
WNW_API int wnw_bridge_wrap(const char *names);

/* Serves a device to other machines with ggml's RPC at "HOST:PORT", until the process ends: a server for one program at a time. device: its
 * name in ggml's registry; NULL: a GPU where there is one, else the CPU with winnow's kernels. Anyone who can connect can run code in this
 * process. Returns only errors: E_ARG, E_BACKEND. */
WNW_API int wnw_bridge_worker(const char *address, const char *device, int32_t n_threads);
/* Whether a text is an address "HOST:PORT" with a port from 1 to 65535, in digits alone. */
WNW_API bool wnw_bridge_is_address(const char *text);
/* Whether only programs of this machine can connect to an address "HOST:PORT". */
WNW_API bool wnw_bridge_is_loopback(const char *address);

/* The version of ggml that the backend was built for, "0.25.3 0c1e570" for example; NULL: winnow was built without it. Static. */
WNW_API const char *wnw_bridge_built_for(void);

/* Checks a model file that a program is about to open with libllama, whose own checks do not cover everything: for some files it
 * divides by 0, ends the process, or never comes back. E_FORMAT, E_UNSUPPORTED: the sentence names the key or tensor. E_IO, E_NOMEM.
 * wnw_model_open does the same. Thread-safe. */
WNW_API int wnw_bridge_check_model(const char *path);

struct llama_context;

/* The cache of one context of libllama, as far as its layers are on our device. */
typedef struct wnw_bridge wnw_bridge;

/* Finds it. synchronize is llama_synchronize of the libllama that made ctx; it is called once, which is how the backend
 * learns whose it is, without linking any libllama. *out is valid as long as ctx, and is used by one thread at a time, as
 * ctx is. E_ARG: nothing of ctx is on our device.
 *
 *     wnw_bridge *cache;
 *     if (wnw_bridge_find(&cache, llama_synchronize, ctx) != WNW_OK) ...
 */
WNW_API int wnw_bridge_find(wnw_bridge **out, void (*synchronize)(struct llama_context *),
                            struct llama_context *ctx);

/* A layer of the cache. libllama cuts a cache into cells, n_cells for each of n_streams streams (one stream unless the
 * context was made with kv_unified = false). A token is in one cell of every layer. */
typedef struct wnw_bridge_layer {
    uint32_t struct_size;
    int32_t layer;  /* the model's number of it */
    int32_t ragged; /* 1: its entries are ours; 0: it is as libllama has it, and the fields below are 0 */
    int32_t n_streams, n_cells, n_heads; /* KV heads */
    int64_t n_entries;                   /* of all heads and streams */
    uint64_t bytes;        /* mapped for their keys and values; around other devices also where ragged is 0 */
    int32_t entry_bytes;   /* of the key and value of one entry */
    int32_t query_bytes;   /* of one token's queries, where a policy looks with those of all tokens; else 0 */
    int32_t n_readers;     /* layers that read it, itself and later ones; 0 before a graph was computed */
    int32_t query_numbers; /* in one token's queries; 0 before a graph was computed with a policy */
    int32_t sliding;       /* 1: it is of the cache whose layers have windows */
    int32_t key_bytes;     /* of the key of one entry; entry_bytes has those of its value, too */
    int32_t room_entries;  /* a head's room is a multiple of it */
} wnw_bridge_layer;
WNW_DEFAULT(wnw_bridge_layer, wnw_bridge_layer_default)

/* Number of layers that the cache has; sliding-window layers and others are in one list. */
WNW_API int32_t wnw_bridge_n_layers(const wnw_bridge *cache);
/* Fills *out for layer i of the list, 0 .. n_layers-1. */
WNW_API int wnw_bridge_get_layer(const wnw_bridge *cache, int32_t i, wnw_bridge_layer *out);

/* Writes the cells whose entries a head of a stream holds to cells[n], ascending, as many as fit. *n_cells is the
 * number of all. cells may be NULL if n is 0. */
WNW_API int wnw_bridge_cells(const wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, int32_t *cells,
                             int32_t n, int32_t *n_cells);

/* Drops a head's entries of these cells, which ascend; cells that it holds no entry of are passed over. No later token
 * sees them in this head, and their memory goes back once a layer needs an eighth less. libllama does not know: its cells
 * stay taken, and come back when it writes them again. What a state holds of dropped entries is described in
 * docs/use/llama-cpp.md. Must not be called while ctx computes. On failure nothing is dropped. */
WNW_API int wnw_bridge_drop(wnw_bridge *cache, int32_t i, int32_t stream, int32_t head, const int32_t *cells,
                            int32_t n);

/* Sets what is kept of sequences: a recipe, as for wnw_policy_parse or wnw_automatic_is, and a size (NULL = the recipe's own).
 * With an automatic recipe the policy is chosen for each sequence when it is compressed, by its length and the profiles that were
 * set. Call this before the prompt is read, because queries are recorded from this call on. by_itself: a sequence is compressed
 * when its prompt has ended. It has ended if two batches in a row bring one token of the sequence each; the compression comes
 * before the second one. Sequences with fewer than WNW_TURNS_LEAST_NEW (winnow_tools.h) new tokens are left alone. recipe = NULL removes
 * the policy. The environment (docs/use/llama-cpp.md) sets such a policy for every new context. E_UNSUPPORTED: the policy needs an
 * observation that is not made here. E_MISMATCH: it needs a profile of a kind that was not set. */
WNW_API int wnw_bridge_set_policy(wnw_bridge *cache, const char *recipe, const wnw_size *size,
                                  bool by_itself);

/* Sets whether heads have room only for the entries that they hold, rounded up to the layer's room_entries. Else a head may have
 * an eighth more, and what is freed goes back once a layer needs an eighth less, so that rows move less often. For programs that
 * promise a limit on bytes: after n more tokens a layer of the CPU has at most n_heads * n_streams * (room_entries - 1 + n) entries'
 * bytes more than its entries now, and two pages. While a state is restored a layer may have an eighth more. Not tight is the
 * default. E_NOMEM: some layers may have more room than that. */
WNW_API int wnw_bridge_set_tight(wnw_bridge *cache, bool tight);

/* Adds the results of profiles (docs/reference/profiles.md) for policies that are set from then on: each file of a list, as wnw_profile_next
 * reads it; NULL has none. Kinds that are there are replaced. The backend sees no model file, so that a profile's sizes are compared with
 * the model's, and its fingerprint is not. Errors are those of wnw_profile_open; files before one that fails stay added. */
WNW_API int wnw_bridge_set_profiles(wnw_bridge *cache, const char *list);

struct wnw_part;

/* What wnw_bridge_set sets. Zeros are the defaults. All is read within the call. */
typedef struct wnw_bridge_setting {
    uint32_t struct_size;
    const char *recipe;   /* as in wnw_bridge_set_policy; NULL: no policy */
    const wnw_size *size; /* NULL = the recipe's own */
    bool by_itself;
    bool found; /* the profiles were looked for: those that do not fit are left out */
    /* With by_itself a sequence is compressed while its prompt is read, too: before a batch, if this many tokens or more were read since
     * the last compression. So its cache has at most what is kept, and as many tokens and a batch more. 0: only prompts that have ended
     * are compressed. Otherwise at least WNW_TURNS_LEAST_NEW, and a policy that needs the whole prompt is refused. */
    int32_t chunk;
    int32_t n_parts, n_profiles;
    /* [n_parts] parts of the program's own (winnow_method.h), which recipes may name: this one, and those of wnw_bridge_set_policy and
     * wnw_bridge_observe from then on. Descriptors are borrowed, and must live as long as ctx. A score function runs in the thread that
     * decodes, and must not use the context; if it fails, the sequence stays whole. */
    const struct wnw_part *const *parts;
    const char *const *profiles; /* [n_profiles] files */
} wnw_bridge_setting;

WNW_DEFAULT(wnw_bridge_setting, wnw_bridge_setting_default)

/* Sets policy, chunk, parts and profiles at once, in place of all that was set before. After a failure everything is as it was before the call.
 * Errors: E_RANGE (chunk), those of wnw_registry_add, of wnw_profile_open and of wnw_bridge_set_policy, in this order. */
WNW_API int wnw_bridge_set(wnw_bridge *cache, const wnw_bridge_setting *setting);

/* Whether a policy can be had here, with these profiles (NULL = none): WNW_OK, E_UNSUPPORTED or E_MISMATCH as above. Asks no cache: a
 * model's layers may still not go with it. One with +sampled can be had by programs that feed a sample; wnw_bridge_set_policy refuses
 * it. Any thread. */
WNW_API int wnw_bridge_check_policy(const wnw_policy *policy, const wnw_profile *profile);
/* The same on a device of that name: one around another device, WINNOW0, has less than WINNOW. E_ARG: there is no such device. */
WNW_API int wnw_bridge_check_policy_on(const char *device, const wnw_policy *policy,
                                       const wnw_profile *profile);

/* E_BACKEND, with a sentence that names its address, if a worker is lost that one of these devices is on: names with commas between, NULL =
 * all devices of the process. Graphs on it fail. Any thread. */
WNW_API int wnw_bridge_check_workers(const char *devices);
/* The same to ask why something failed: also where a worker was lost since the last call of this function, and ggml has connected to it
 * again. The sentence says what came first. */
WNW_API int wnw_bridge_lost_workers(const char *devices);

/* Compresses, at once, the sequence that the last row of the last batch belongs to. Sequences are distinguished by the
 * cells that their rows see. So sequences that share a prefix share what is kept of it. E_NOT_OBSERVED, E_UNSUPPORTED,
 * E_RANGE: as for wnw_session_compress. */
WNW_API int wnw_bridge_compress(wnw_bridge *cache);

/* ---- For programs that know the sequences: one cache for all of them (kv_unified) ---- */

/* Is called before a graph runs: row i of it is written to cell cells[i] of n_cells. Rows come in the order of the program's
 * batch, in one call for each ubatch. With recurrent layers libllama may reorder them. Layers with a sliding window have
 * cells of their own, which are not reported. Called by the thread that decodes; must not use the context. n = 0: memory ran
 * out. */
typedef void (*wnw_bridge_rows)(const int32_t *cells, int32_t n, int32_t n_cells, void *user);
/* Sets the function, one for each cache; NULL takes it away. */
WNW_API int wnw_bridge_tell_rows(wnw_bridge *cache, wnw_bridge_rows told, void *user);

/* Within that function: writes the cells that row `row` of the graph sees, its own among them, to cells[n] in ascending order, as
 * many as fit; *n_cells is their number. For sequences whose cells were read from a state. E_NOT_OBSERVED: the graph does not
 * show it. */
WNW_API int wnw_bridge_seen(const wnw_bridge *cache, int32_t row, int32_t *cells, int32_t n,
                            int32_t *n_cells);

/* Within that function too: has the query of row `row` not kept for policies that look with the queries of all tokens; those that
 * look with the newest ones miss nothing. For tokens that were generated, and for prompts that no such policy will see: queries
 * take more memory than the keys and values of their tokens. */
WNW_API int wnw_bridge_skip_query(wnw_bridge *cache, int32_t row);

/* Observes from now on what the recipe needs, in addition to what is observed already. Call it before a prompt is read
 * that wnw_bridge_compress_cells will compress by that recipe. Errors are those of wnw_bridge_set_policy. */
WNW_API int wnw_bridge_observe(wnw_bridge *cache, const char *recipe);
/* Ends what is observed: from now on it is what wnw_bridge_observe names afterwards. To be called between prompts, before the calls that name
 * what is wanted still. What was noted for others of tokens that are in the cache is lost with the next graph, so that policies
 * which need it refuse for these tokens (E_NOT_OBSERVED). */
WNW_API int wnw_bridge_unobserve(wnw_bridge *cache);

/* ---- A sample that is read a second time, for policies with +sampled ---- */

/*
 * Such a policy needs the attention that some tokens of a prompt get while the model repeats them. wnw_sample_places (winnow_method.h)
 * chooses them by wnw_needs.sample, among the tokens that were not compressed before. The program feeds them before the last batch of a
 * prompt. It has libllama decode all places after the sequence, in order, each with the tokens that lead to it. It takes the sample with
 * wnw_bridge_sample_new. Then it removes what it has fed (llama_memory_seq_rm, wnw_bridge_forget). Once the prompt was read, it gives the
 * sample to wnw_bridge_compress_cells. Queries of what is fed must not be skipped (wnw_bridge_skip_query). With sliding-window layers all
 * fed tokens must be in one ubatch, because libllama would overwrite cells that the next tokens see.
 */
typedef struct wnw_bridge_sample wnw_bridge_sample;
struct wnw_sample_place;

typedef struct wnw_bridge_sample_of {
    uint32_t struct_size;
    int32_t n_cells;
    /* [n_cells] of the sequence in the order of its tokens, then of the last n_fed, which were fed again */
    const int32_t *cells;
    int32_t n_fed;
    const struct wnw_sample_place
        *places; /* [n_places] of cells[], in ascending order, where the tokens are that were repeated */
    int32_t n_places;
} wnw_bridge_sample_of;
WNW_DEFAULT(wnw_bridge_sample_of, wnw_bridge_sample_of_default)

/* Takes the sample: *out is the caller's, NULL after an error, and does not outlive the cache. A policy with +sampled must be observed
 * before the prompt is read (wnw_bridge_observe). E_ARG, E_RANGE: cells that are none, or no sample; E_NOT_OBSERVED: queries of what was
 * fed were not kept; E_NOMEM. */
WNW_API int wnw_bridge_sample_new(wnw_bridge_sample **out, wnw_bridge *cache, const wnw_bridge_sample_of *of);
WNW_API void wnw_bridge_sample_free(wnw_bridge_sample *sample);

/* A sequence and what to keep of it. */
typedef struct wnw_bridge_cells_of {
    uint32_t struct_size;
    int32_t n_cells;
    /* [n_cells] of the sequence, in the order of its tokens; those left out stay as they are */
    const int32_t *cells;
    const wnw_policy *policy;
    const wnw_size *size; /* NULL: the policy's own */
    /* The first of cells[n_cells] that a chat template wrote: they stay, and a budget or ratio is of the others. Every head must
     * have them all. A policy that keeps headers sees them, from others they are hidden. Bytes are of what the policy sees. */
    int32_t n_prefix;
    const wnw_bridge_sample *sample; /* for policies with +sampled; NULL: none was fed */
    /* Policies of blocks, such as lagkv, judge each block once. Before: how many first entries of every head they have settled,
     * where the cache does not know it, because its state came from a file. Afterwards: how many are settled now. NULL: what the
     * cache knows. */
    int32_t *n_settled;
    /* [n_prefix] cells of the header, where cells[n_cells] are those after it: for a part that does not begin where the header ends.
     * NULL: cells[] begins with them. */
    const int32_t *prefix;
} wnw_bridge_cells_of;
WNW_DEFAULT(wnw_bridge_cells_of, wnw_bridge_cells_of_default)

/* Compresses a sequence at once. Sequences that share a cell share what is kept of it. Errors: as for wnw_bridge_compress;
 * E_RANGE where a cell is not one of the cache. */
WNW_API int wnw_bridge_compress_cells(wnw_bridge *cache, const wnw_bridge_cells_of *of);

/* Frees the queries of cells[n] that were kept for policies that need those of all tokens. Call it if no such policy will
 * compress the cells' sequence as it is now. Compressing and freeing cells free them, too. E_RANGE as above. */
WNW_API int wnw_bridge_forget_queries(wnw_bridge *cache, const int32_t *cells, int32_t n);

/* Frees the entries of cells[n] in every head: no sequence has them any more, since llama_memory_seq_rm removed them. E_RANGE
 * as above. */
WNW_API int wnw_bridge_forget(wnw_bridge *cache, const int32_t *cells, int32_t n);

#ifdef __cplusplus
}
#endif

#endif
