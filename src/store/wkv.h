/* SPDX-License-Identifier: MIT */
/*
 * Stored sessions, *.wkv. docs/reference/wkv.md describes the file byte by byte: a head with a table of blocks, then the blocks, each of
 * which begins a page and has a checksum of all its pages.
 */
#ifndef WNW_WKV_H
#define WNW_WKV_H

#include "base/whole_file.h"
#include "cache/cache_stored.h"
#include "session/timeline/state.h"
#include "winnow_store.h"

#include <jansson.h>
#include <time.h>

#define WNW_WKV_MAGIC       "\x89WKV\r\n\x1a\n"
#define WNW_WKV_BYTE_ORDER  0x01020304u
#define WNW_WKV_MOST_BLOCKS 4096

/* Numbers are in the byte order of the machine that wrote them. */
struct wnw__wkv_head {
    char magic[8];
    uint32_t byte_order;
    uint32_t version;
    uint64_t file_bytes;
    uint32_t page;      /* WNW_STORED_PAGE */
    uint32_t n_block;   /* entries of the table, which follows the head */
    uint64_t table_sum; /* XXH3 of everything between the head and the first block */
    uint64_t reserved[2];
    uint64_t sum; /* XXH3 of the head before it */
};

enum wnw__wkv_kind {
    WNW_WKV_META = 1,  /* JSON */
    WNW_WKV_TOKENS,    /* int32 [n] all that were read */
    WNW_WKV_IDS,       /* int32 [n_past] by position, where these are others */
    WNW_WKV_DOCUMENT,  /* UTF-8 */
    WNW_WKV_RECURRENT, /* as libllama saves it */
    WNW_WKV_COUNTS, /* int32, of every layer: n_swa, n_settled, n_ambiguous, len[n_head_kv], and with a tail n_first[], n_quantised[] */
    WNW_WKV_HELD,   /* int32 [n_layer][n_head_kv] entries that sliding heads hold */
    WNW_WKV_LAYER,  /* cache/cache_stored.h */
    WNW_WKV_N_KINDS
};

struct wnw__wkv_block {
    uint32_t kind, number; /* number: of the layer; 0 of other kinds */
    uint64_t at, bytes;    /* from the file's start; without the zeros up to the next page */
    uint64_t sum;          /* XXH3 of the bytes and those zeros */
};

static inline uint64_t wnw__wkv_round(uint64_t bytes)
{
    return (bytes + WNW_STORED_PAGE - 1) / WNW_STORED_PAGE * WNW_STORED_PAGE;
}

/* What the block of META says. Strings and `text` are owned by `json`. */
struct wnw__wkv_meta {
    json_t *json;
    const char *writer, *model, *arch, *fingerprint;
    int32_t n_layer, n_head_kv, n_embd_head, n_vocab;
    wnw_kv_type kv_type;
    int32_t kv_tail;
    int32_t k_block, v_block;
    int32_t aux_planes[WNW_N_AUX];
    struct wnw__session_state state; /* its numbers */
    const char *policy;              /* of the rules; NULL = none */
    bool has_text, pieces;
    wnw_prompt_params text; /* without the document */
    const char *note;       /* of the program; NULL = none */
    const char
        *form; /* what a folder of documents finds it by, with its tokens; NULL = it was not made for one */
};

/* The JSON of what is to be stored. E_NOMEM, E_UNSUPPORTED. *text is released with free. */
int wnw__wkv_meta_text(char **text, size_t *len, const struct wnw__wkv_meta *meta);
/* Reads it. E_FORMAT with a sentence; E_NOMEM. *meta is released with wnw__wkv_meta_clear in any case. */
int wnw__wkv_meta_parse(struct wnw__wkv_meta *meta, const char *text, size_t len);
void wnw__wkv_meta_clear(struct wnw__wkv_meta *meta);

/* A file that was opened and checked. */
struct wnw_stored {
    int fd;
    size_t n_bytes; /* of the file */
    uint8_t *front; /* head and table, owned */
    /* [head->n_block] what was read of each, owned: all of it, of layers the positions, NULL of kinds that are not known */
    uint8_t **block;
    struct timespec written; /* when somebody wrote to it last, as it was opened */
    const struct wnw__wkv_head *head;
    const struct wnw__wkv_block *table; /* [head->n_block] */
    struct wnw__wkv_meta meta;
    wnw_policy *policy; /* of the rules, owned; NULL = none */
    const int32_t *tokens;
    int32_t n_tokens;
    const int32_t *ids;    /* [n_past] */
    const int32_t *counts; /* the block of counts */
    /* [n_layer][n_head_kv] entries that the heads before it have in its layer; owned. Asking for one head after the other would add
     * them up again each time. */
    int64_t *before;
    const struct wnw__wkv_block **layer; /* [n_layer] owned, the blocks are not */
    char *document;                      /* owned, NUL-terminated; NULL = none */
    struct wnw__cache form;              /* an empty cache of the same form, for sizes */
};

/* E_FORMAT where somebody has written to the file since it was opened: what was checked is not what would be used, or not there any
 * more. */
int wnw__wkv_unchanged(const struct wnw_stored *st);
/* Opens and checks the file that fd is, which the caller closes: what wnw_stored_open does without a name. Errors are its own, without
 * the name in their sentences. */
int wnw__wkv_open(struct wnw_stored **out, int fd);
/* E_MISMATCH, E_FORMAT with a sentence unless a session of this model and form can be made of the file. */
int wnw__wkv_check_session(const struct wnw_stored *st, const wnw_session *s);
/* wnw_session_store in two steps: wnw__wkv_write writes the file, and opens it to check it, before it has its name, which
 * wnw__whole_file_commit gives it. form: as in struct wnw__wkv_meta. The caller ends *file with wnw__whole_file_abort in any case. */
int wnw__wkv_write(struct wnw__whole_file *file, const wnw_session *s, const char *path,
                   const wnw_store_params *params, const char *form);
/* Whether entries have other positions than those at which they were read. */
bool wnw__wkv_has_new_positions(const struct wnw_stored *st);
/* What was read of a block of the table. */
const uint8_t *wnw__wkv_bytes(const struct wnw_stored *st, const struct wnw__wkv_block *b);
/* The block of this kind and number, or NULL. */
const struct wnw__wkv_block *wnw__wkv_find(const struct wnw_stored *st, enum wnw__wkv_kind kind,
                                           uint32_t number);
/* The counts of a layer, in the block of counts. */
struct wnw__stored_counts wnw__wkv_counts(const struct wnw_stored *st, int32_t il);

#endif
