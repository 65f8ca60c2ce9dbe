/* SPDX-License-Identifier: MIT */
/*
 * winnow: sessions in files. A compressed document is read once, stored, and asked many times, by any number of processes:
 *
 *     wnw_session_store(s, "doc.wkv", NULL);              after wnw_session_read
 *     ...
 *     wnw_stored_open(&stored, "doc.wkv");
 *     wnw_stored_session(&s, stored, engine, NULL);       as many as are wanted
 *     wnw_session_prefill(s, question, n, NULL, NULL);    and so on
 *
 * The file (docs/reference/wkv.md) has the cache, the tokens, the recipe and, where the program gives it, the text, so that questions
 * get the template that the document got. A session of it goes on bit for bit as the one that was stored. Conventions are
 * those of winnow.h.
 */
#ifndef WINNOW_STORE_H
#define WINNOW_STORE_H

#include "winnow_batch.h"
#include "winnow_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of files that the library writes, and the newest that it reads. */
#define WNW_STORED_VERSION 1

/* What is stored in addition to the session. Zeros are the defaults; pointers are borrowed for the call. */
typedef struct wnw_store_params {
    uint32_t struct_size;
    /* How the prompt was laid out: document, system message, template. Earlier turns (n_messages) are refused. NULL = the
     * file has no text, and wnw_stored_get_text gives none. */
    const wnw_prompt_params *text;
    /* All tokens that were read, [n_tokens], where the session has given them new positions (+rerotate) and no longer knows
     * them all. NULL = those of the session. */
    const int32_t *tokens;
    int32_t n_tokens;
    /* The tokens are not those of the text: pieces of it were read one by one. */
    bool pieces;
    const char *note; /* what the program itself wants to find again, UTF-8; NULL = nothing */
} wnw_store_params;

WNW_DEFAULT(wnw_store_params, wnw_store_default_params)

/* Writes the session to a file that appears under its name when all of it is on the disk; a file that was there is
 * replaced then, and stays as it is after a failure or if the process ends before. Stored are the cache with everything
 * that is kept of its entries, the state of recurrent layers, and the rules of wnw_session_begin with their counts; not
 * the logits, nor what policies have observed, nor a profile. params NULL = defaults. Errors: E_ARG (nothing was read; the
 * path is no place for a file), E_UNSUPPORTED (masked heads; rules with `every`; a policy with parts from outside the
 * library; earlier turns), E_IO (the file cannot be written), E_NOMEM. */
WNW_API int wnw_session_store(const wnw_session *s, const char *path, const wnw_store_params *params);

/* Whether a file begins as stored sessions do. False too where there is no such file, or no regular one, which is not read from. */
WNW_API bool wnw_stored_is(const char *path);

/* A stored session. It may be shared by threads once it is open. */
typedef struct wnw_stored wnw_stored;

/* Opens a file and checks all of it: its checksums, and that sizes and numbers fit each other. Everything but keys and values is copied; the file is
 * never written to, and may be replaced or removed while it is open: what winnow writes replaces files whole. What another program
 * writes into it in place, as `cp` over it does, is noticed by the next session of it. Release it with wnw_stored_free after
 * every session of it. Errors: E_IO (no such file, or it cannot be read), E_FORMAT (no regular file, truncated, damaged, or of a
 * machine with another byte order), E_UNSUPPORTED (a newer version), E_NOMEM. */
WNW_API int wnw_stored_open(wnw_stored **out, const char *path);
WNW_API void wnw_stored_free(wnw_stored *st);

/* What is in a file. Strings are borrowed from the wnw_stored. */
typedef struct wnw_stored_info {
    uint32_t struct_size;
    int32_t version;
    const char *writer;      /* version of the library that wrote it */
    const char *model;       /* the model's name */
    const char *arch;        /* its family */
    const char *fingerprint; /* of its weights, as wnw_model_fingerprint writes it */
    int32_t n_layer, n_head_kv, n_embd_head;
    wnw_kv_type kv_type;
    int32_t kv_tail;
    bool kv_unrotated;
    bool recurrent;         /* with the state of recurrent layers */
    const char *policy;     /* its canonical recipe; NULL = the session had no rules */
    wnw_size size;          /* of those rules */
    wnw_phase phase;        /* and when they compress a prompt */
    int32_t chunk;          /* as in wnw_run */
    int32_t n_tokens;       /* that were read */
    int32_t n_past;         /* position of the next token */
    int64_t n_entries;      /* over all layers and KV heads */
    uint64_t bytes_entries; /* of their keys and values */
    uint64_t bytes_file;
    bool pieces;      /* as in wnw_store_params */
    int32_t n_prefix; /* first tokens, which the template wrote */
    /* Entries after those of the n_prefix tokens that a recursive policy, such as lagkv, has settled in every head; 0: none. */
    int32_t n_settled;
    double chunk_slack; /* as in wnw_run_more; 0 = the size after each chunk */
} wnw_stored_info;

WNW_DEFAULT(wnw_stored_info, wnw_stored_info_default)

/* Fills *out. E_ARG: a pointer is NULL (zeros where it is the file), or struct_size is not set. */
WNW_API int wnw_stored_get_info(const wnw_stored *st, wnw_stored_info *out);
/* All tokens that were read, [*n]. Borrowed from the wnw_stored. */
WNW_API const int32_t *wnw_stored_tokens(const wnw_stored *st, int32_t *n);
/* Sets *positions to those of the entries of layer il, KV head ih, ascending, and returns their number; 0 where there is no
 * such head. Borrowed from the wnw_stored. */
WNW_API int32_t wnw_stored_head(const wnw_stored *st, int32_t il, int32_t ih, const int32_t **positions);
/* Fills *out with the text that was stored; its strings are borrowed from the wnw_stored. False where there is none. */
WNW_API bool wnw_stored_get_text(const wnw_stored *st, wnw_prompt_params *out);
/* The note that was stored; NULL where there is none. Borrowed from the wnw_stored. */
WNW_API const char *wnw_stored_note(const wnw_stored *st);
/* E_MISMATCH unless the model is the one that the file was made with. */
WNW_API int wnw_stored_check_model(const wnw_stored *st, const wnw_model *m);

typedef struct wnw_stored_session_params {
    uint32_t struct_size;
    int32_t n_ctx; /* longest timeline in tokens, 0 = what the model was trained for */
    /* Tokens that are expected after those of the file. The cache has room for them from the beginning, so that nothing
     * needs to be copied when they come. 0 = 512, or what the context holds. */
    int32_t room;
    /* Keys and values are copied and no room is made, so that the cache takes the memory that it takes where a session has read the
     * tokens: for programs that measure, and where somebody may shorten the file. */
    bool copied;
    bool (*progress)(int32_t done, int32_t total, void *user); /* as in wnw_session_params; NULL: none */
    void *progress_user;
} wnw_stored_session_params;

WNW_DEFAULT(wnw_stored_session_params, wnw_stored_session_default_params)

/* Makes a session that goes on where the stored one was, under its rules, without logits until a token is read. Its keys
 * and values are pages of the file where they fill some: they are read when they are used, processes share them, and the
 * system copies one before it is changed. So a program that shortens the file while such a session lives, in place and not by a
 * rename, ends the process (SIGBUS) where a row is read that is gone; sessions that are `copied` know nothing of it. st and the
 * engine must outlive the session. params NULL = defaults. Errors:
 * E_MISMATCH (another model), E_FULL (a context shorter than what was read), E_UNSUPPORTED (a tail with the ggml
 * attention), E_RANGE, E_NOMEM; E_FORMAT where the file's numbers do not fit the model, or somebody has written
 * to it since it was opened. */
WNW_API int wnw_stored_session(wnw_session **out, const wnw_stored *st, wnw_engine *e,
                               const wnw_stored_session_params *params);

/* wnw_session_begin for reading on under the same rules. Policy, size, phase, chunk and chunk_slack of the run must be those of the
 * file. The rules also count what was read before it was stored, so that a ratio or a budget is that of all tokens
 * together. E_ARG: the run differs from the file. Errors are those of wnw_session_begin. */
WNW_API int wnw_stored_resume(wnw_session *s, const wnw_stored *st, const wnw_run *run);

/* Makes the state of a sequence of libllama, for llama_state_seq_set_data of the libllama that winnow is built for: the file's
 * tokens at positions 0 .. n_tokens-1, each with a key and a value in every layer and head. Those that a head has dropped have
 * all bits set, which the backend (winnow_bridge.h) takes for dropped; libllama without it would compute with them. The
 * context needs a cache of the file's kv_type, for keys and values, with flash attention, and as libllama rotates it. *bytes, [*n],
 * is released with wnw_free; bytes = NULL only asks whether it can be made, and how large it is. E_UNSUPPORTED: libllama's cache
 * cannot hold what is in the file (a tail, biases, entries at new positions, recurrent layers, another rotation); the
 * message says which. E_NOMEM. */
WNW_API int wnw_stored_sequence(const wnw_stored *st, uint8_t **bytes, size_t *n);

/* The other way: fills a session that has read nothing with the state of a sequence of libllama. It is one that llama_state_seq_get_data has
 * written, of the libllama that winnow is built for; tokens[n_tokens] are all that the sequence has read. Entries whose bits are all set are dropped; where none is, the session can be rewound. It is then as if it had read
 * the tokens, without logits and observations; its rules (wnw_session_begin) count them as a prompt that was compressed. The session's cache
 * must have the type of libllama's. n_settled: first entries of every head that a recursive policy, such as lagkv, has settled, so that it leaves
 * them as they are; 0: none, or it is not known. E_ARG: the session has read something, or n_settled is negative. E_FORMAT: no state of such a sequence of this model. E_UNSUPPORTED: a
 * tail, another rotation, or recurrent layers. E_FULL, E_NOMEM. After a failure the session can only be reset or freed. */
WNW_API int wnw_session_take_sequence(wnw_session *s, const uint8_t *state, size_t n, const int32_t *tokens,
                                      int32_t n_tokens, int32_t n_settled);

/* Adds tokens from .. from + n - 1 of a stored session to the end of a session: what the file has kept of them, at the positions that follow, to which
 * keys are turned. Tokens that the session reads afterwards attend to them. What was added was computed without the tokens before it, so that the
 * first ones of a document are better read again (wnw_session_prefill) and the rest added. There are no logits and observations, and the session
 * cannot be rewound to before its end. E_RANGE: the file has not read these tokens. E_MISMATCH: another model. E_FULL. E_UNSUPPORTED: caches of
 * different types, a tail, new positions in the file, sliding windows, recurrent layers, or keys that are not turned by plain RoPE. E_NOMEM:
 * the session can then only be reset or freed. */
WNW_API int wnw_session_append(wnw_session *s, const wnw_stored *st, int32_t from, int32_t n);

/* Stores what the reader of wnw_ask has read, as wnw_session_store does. E_ARG: it has read no document. */
WNW_API int wnw_reader_store(const wnw_reader *r, const char *path);
/* Takes a stored document in place of the one that was read last. The file must stay as it is until wnw_close or the next document.
 * Nothing changes on failure. Errors: E_MISMATCH (another model, or a template that writes the document otherwise), E_ARG (the file
 * has no text), those of wnw_stored_open and wnw_stored_session. */
WNW_API int wnw_reader_load(wnw_reader *r, const char *path);

/* ======== A folder of stored sessions ======== */

/* A folder of documents that were read and compressed, with an index (SQLite) that several processes may use at once. It
 * belongs to one thread at a time. */
typedef struct wnw_store wnw_store;

/* Whether there is a folder of documents: one with an index, or with a file of a name that a store gives. */
WNW_API bool wnw_store_is(const char *folder);

/* Opens the folder, or makes it, without a lock that other processes wait for. Where it has documents and no index, one is made from
 * them. limit: bytes of files above which the least recently used ones are removed when one is
 * added; 0 = none. A folder that cannot be written to can still be searched. Release it with wnw_store_close. Errors: E_IO,
 * E_FORMAT (its index is damaged: wnw_store_repair), E_MISMATCH (it is another program's database), E_UNSUPPORTED (a newer index), E_NOMEM. */
WNW_API int wnw_store_open(wnw_store **out, const char *folder, uint64_t limit);
WNW_API void wnw_store_close(wnw_store *store);

/* What a stored document is found by: it must agree in everything. Pointers are borrowed for the call. */
typedef struct wnw_store_key {
    uint32_t struct_size;
    const wnw_model *model;
    const wnw_session_params *session; /* attention, type, tail and rotation of the cache */
    const wnw_run *run;    /* policy, size, phase, chunk, chunk_slack and what the prompt's template wrote */
    const int32_t *tokens; /* [n_tokens] of the document, as they are read */
    int32_t n_tokens;
} wnw_store_key;

WNW_DEFAULT(wnw_store_key, wnw_store_key_default)

/* Opens the stored document with the longest beginning of the key's tokens; `exact`: with all of them. *out is NULL where
 * there is none. A file that is damaged or gone counts as none. What is read on from a beginning is what reading all tokens gives where
 * wnw_store_continues says so; otherwise it depends on what else the folder has. Errors: E_ARG, E_UNSUPPORTED (a run with a profile, whose
 * numbers are not in the key, or with `every`), E_IO, E_NOMEM. */
WNW_API int wnw_store_find(wnw_stored **out, wnw_store *store, const wnw_store_key *key, bool exact);
/* Stores a session that has read the key's tokens under the key's run, in place of one that was there, and then removes
 * what exceeds the limit. When the call returns WNW_OK, the document is on the disk. params as in wnw_session_store, whose
 * tokens are the key's. Errors: those of wnw_session_store; E_FULL: the file alone is larger than the limit. */
WNW_API int wnw_store_add(wnw_store *store, const wnw_store_key *key, const wnw_session *s,
                          const wnw_store_params *params);

/* Whether reading a text in two pieces, with storing in between, gives the same session, up to rounding, as reading it at once. It does if
 * nothing is dropped, changed or noted when a piece ends: the policy keeps everything. */
WNW_API bool wnw_store_continues(const wnw_run *run);

/* A row of the index. */
typedef struct wnw_store_entry {
    uint32_t struct_size;
    int32_t n_tokens;
    uint64_t bytes;                         /* of the file */
    int64_t made, used;                     /* seconds since 1970 */
    char name[40];                          /* of the file in the folder */
    char fingerprint[WNW_FINGERPRINT_SIZE]; /* of the model */
    char policy[300];                       /* its recipe, cut off where it is longer */
} wnw_store_entry;

WNW_DEFAULT(wnw_store_entry, wnw_store_entry_default)

/* Calls `visit` for every document, the most recently used first; false ends it. The store must not be used within. */
WNW_API int wnw_store_list(wnw_store *store, bool (*visit)(const wnw_store_entry *entry, void *user),
                           void *user);
/* Removes the document of that name. E_ARG: there is none. */
WNW_API int wnw_store_remove(wnw_store *store, const char *name);
/* What a check has found, in numbers of documents. */
typedef struct wnw_store_report {
    uint32_t struct_size;
    int64_t n_whole; /* that can be used */
    int64_t n_added; /* of these, those that no row of the index named; now one does */
    int64_t n_aside; /* damaged, or named as another one; moved to the folder `unreadable` */
    int64_t n_gone;  /* rows whose file is gone; they are removed */
    int64_t n_other; /* that need another program, as a newer one; they stay where they are */
} wnw_store_report;

WNW_DEFAULT(wnw_store_report, wnw_store_report_default)

/* Opens every document that the index or the folder has, and brings the two together; no document is deleted. `note` (may be NULL) is
 * called for each that is added, moved or gone, with what was done and why. What a process has left that ended while it stored is removed; files of
 * names that a store does not give stay. No lock is held meanwhile but for what is changed. report may be NULL. Errors: E_IO (also: a document is
 * there and cannot be read), E_FORMAT (the index is damaged: wnw_store_repair), E_NOMEM. */
WNW_API int wnw_store_check(wnw_store *store, wnw_store_report *report,
                            void (*note)(const char *name, const char *what, void *user), void *user);
/* Moves an index that is damaged to the folder `unreadable`, and makes one from the documents. Nothing is done where the index can be
 * read. No store of the folder should be open. Errors: E_MISMATCH (the database is another program's), E_UNSUPPORTED (a newer one's),
 * E_IO, E_NOMEM. */
WNW_API int wnw_store_repair(const char *folder);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_STORE_H */
