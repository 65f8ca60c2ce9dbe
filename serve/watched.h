/* SPDX-License-Identifier: MIT */
/*
 * The context that winnow compresses and the state of its sequences, for the thread that decodes. The process has one, in calls.c.
 * A second context, of a draft model, is left to libllama.
 *
 * Sequences 0 .. n_slots-1 belong to the slots. Each document has one of the following sequences, and nothing is ever added to it. Then come those of
 * lists of documents (join_cells.h).
 * A slot that begins with the document shares its cells.
 */
#ifndef WNW_SERVE_WATCHED_H
#define WNW_SERVE_WATCHED_H

#include "serve/batches.h"
#include "serve/documents.h"
#include "serve/sequences.h"
#include "serve/slot_file.h"
#include "serve/slots.h"
#include "winnow_bridge.h"

/* The state of a sequence, in addition to its cells. */
struct serve_slot_cache {
    int32_t n_new; /* tokens of prompts since it was compressed */
    bool reading;  /* a prompt, and more of it will come */
    bool compressed;
    struct serve_keep_rule by;
    int64_t entries;  /* in all heads */
    int32_t n_judged; /* first tokens that a compression has judged */
    int32_t
        n_settled; /* first entries of a head after the header that a policy of blocks has judged; 0: none, or it is not known */
    int32_t at_prompt; /* the first token of the last prompt that it read */
    bool restored;     /* its first tokens were restored from a file, so nothing was recorded for them */
    bool unnoted;      /* the records of tokens that it read were dropped, because no rule needs them */
    int32_t n_unknown; /* first tokens, read from a file, whose cells are not known yet */
    bool recount;      /* its cells have just become known, and its entries must be counted */
    int32_t document_plus_1; /* 1 + the document that it begins with, 0 = none */
    bool of_list;            /* its first tokens are those of a list of documents that is there no more */
};

/* The rule of a slot, set when a request claims it: no later step parses its recipe. */
struct serve_rule {
    struct serve_keep_rule keep_rule;
    wnw_policy *policy; /* owned; NULL: everything is kept, or it is chosen for each prompt */
    bool asks;          /* it looks with queries */
    bool notes;         /* and those of the batch that runs are a prompt's */
};

/* Where the prompt of a slot's request leaves what was there (breaks.h). */
struct serve_break {
    uint64_t noted, told, begun; /* claims, as serve_how has them; begun where rows are not matched */
    int32_t at, n_was;
    int32_t *was;    /* [n_was] the tokens from `at` on, owned; NULL: they are not known */
    bool of_others;  /* they are of another client */
    int32_t n_first; /* tokens before the first row of the prompt, as the server counts them */
};

/* States to which a slot can be gone back (borders.h), by their number of tokens. */
enum { SERVE_BORDERS = 8 };
struct serve_borders {
    const void *tokens; /* the server's, of the slot; NULL: not known yet */
    bool restored;      /* the server has no borders of it */
    int32_t n;
    struct serve_border {
        int32_t n_tokens;
        size_t bytes;
        uint8_t *state; /* owned */
    } of[SERVE_BORDERS];
};

struct serve_watched {
    struct llama_context *ctx; /* NULL: none yet */
    wnw_bridge *cache;
    bool feeds;     /* samples of prompts can be fed again (serve/sample.h) */
    bool unmatched; /* rows and sequences are not matched: the backend decides by itself */
    int32_t n_slots, row_entries;
    int32_t joined[SERVE_MAX_JOINS]; /* 1 + the list of documents whose sequence is there, 0 = none */
    int32_t most;  /* tokens that a slot holds before room is made in it; 0: none is made (stretch.h) */
    bool no_flash; /* flash attention was turned off (-fa off) */
    int32_t type_k, type_v; /* ggml's types of keys and values, as the context was asked for */
    struct serve_sequences sequences;
    struct serve_slot_cache slot_cache[SERVE_MAX_SLOTS + SERVE_MAX_DOCUMENTS + SERVE_MAX_JOINS];
    struct serve_rule rule[SERVE_MAX_SLOTS];
    struct serve_keep_rule least; /* the server's own rule, of the shortest prompts */
    uint32_t observed;            /* WNW_NEED_ flags of what is observed */
    wnw_policy *fallback;         /* SERVE_FALLBACK */
    struct serve_batches batches;
    const struct serve_batch *running; /* while the graph of a batch runs */
    int32_t at;                        /* its next row */
    bool feeding;                      /* and it is a sample */
    struct serve_seen {
        int32_t *cells, n, own;        /* [n] all that it sees, with its own */
    } * seen;                          /* set where somebody asks what the first row of a batch sees */
    int32_t n_before[SERVE_MAX_SLOTS]; /* tokens of the slots before it */
    wnw_bridge_sample *sample[SERVE_MAX_SLOTS]; /* of the prompt that is being read; NULL: none was fed */
    struct serve_slot_read reading;             /* from a file, between the server's two calls for it */
    struct serve_break breaks[SERVE_MAX_SLOTS];
    struct serve_restored {
        int32_t *token, *at; /* [n] and where the server counts them, NULL: at 0, 1, 2 ...; owned */
        int32_t n;
        bool *free; /* [n_cells] the cells that were free for them, NULL: it is not known; owned */
    } restored[SERVE_MAX_SLOTS]; /* tokens that came from a file, until their cells are known */
    struct serve_said {
        int32_t *token, n, room;
    } said[SERVE_MAX_SLOTS]; /* all tokens of the conversations, where room may be made (stretch.h); owned */
    struct serve_borders borders[SERVE_MAX_SLOTS];
    size_t
        n_compared; /* tokens that the slot compared last has in common with its request, until that was asked */
    const void *compared; /* tokens that the server compared last, until it is known whose they are */
    int32_t goes_back_seq, goes_back_to; /* the border to which the server was told to go back, 0: none */
    bool copied[SERVE_MAX_SLOTS];        /* what the slot holds is another slot's, for a further answer */
    bool dead_cells_unknown; /* cells of a state from a file are dead, and nobody has learnt which */
    bool *marked;            /* [n_cells] scratch */
    char last_fallback_reason[SERVE_TEXT]; /* why the fallback was taken last */
    char cannot[SERVE_RECIPE]; /* a recipe that this model's layers do not go with; "" = none yet */
};

/* Begins to watch a context that has just been made, and ends it. What cannot be watched ends the process. on_rows is called with w
 * for the rows of each batch (wnw_bridge_tell_rows). */
void serve_watch(struct serve_watched *w, struct llama_context *ctx, wnw_bridge_rows on_rows);
void serve_unwatch(struct serve_watched *w);

/* Has observed what the server's own rule needs, those of slots with a request, and those of what slots hold by the server's own. What others
 * needed is given up once no prompt is being read. */
void serve_watched_observe(struct serve_watched *w);

/* The number of sequences, those of documents included. */
int32_t serve_watched_n(const struct serve_watched *w);
/* The sequence of the document with the number document_plus_1 - 1; -1: it is a list that is gone. */
int32_t serve_watched_document(const struct serve_watched *w, int32_t document_plus_1);
/* Bytes that n more tokens would make of the keys and values that are held, at most. */
uint64_t serve_watched_bytes_with(const struct serve_watched *w, int32_t n);
/* A layer's numbers. False: its entries are not of the backend, or it has cells for a window alone. */
bool serve_watched_whole_layer(const struct serve_watched *w, int32_t i, wnw_bridge_layer *l);
/* Whether several layers read one cache, as far as a graph has shown it. */
bool serve_watched_shares_caches(const struct serve_watched *w);
/* Counts the entries of a sequence. */
void serve_watched_count(struct serve_watched *w, int32_t seq);
/* Tells what a slot or a document holds, and how much there is of all. */
void serve_watched_report(struct serve_watched *w, int32_t seq);
void serve_watched_tell(struct serve_watched *w, bool compressed_one, bool failed_one);
/* The sequence holds n tokens at most of those that came from a file and whose cells are not known. Whether it had more. */
bool serve_watched_lose(struct serve_watched *w, int32_t seq, int32_t n);
/* Takes note of the tokens that a slot has from a file, and with at != NULL of where the server counts them; with n = 0 of none. False: no memory. */
bool serve_watched_restored(struct serve_watched *w, int32_t seq, const int32_t *ids, const int32_t *at,
                            int32_t n);
/* Whether a slot was restored, and nobody knows yet which cells it has. */
bool serve_watched_has_unknown(const struct serve_watched *w);
/* Marks in held[n_cells] the cells that hold an entry of anything. A slot that was restored has some before anybody knows which. cells: [n_cells]
 * scratch. */
void serve_watched_mark_held(const struct serve_watched *w, bool *held, int32_t *cells);
/* Notes which cells are free, before a state is put into a slot that is empty. */
void serve_watched_note_free(struct serve_watched *w, int32_t seq);
/* Has a slot that is a copy of another one know what is known of that one's tokens from a file. */
void serve_watched_copy_restored(struct serve_watched *w, int32_t from, int32_t to);
/* Where the server counts token k of a slot; and how many more tokens it counts than the slot has. Also before its cells are known. */
int32_t serve_watched_at(const struct serve_watched *w, int32_t seq, int32_t k);
int32_t serve_watched_removed(const struct serve_watched *w, int32_t seq);
/* The number of tokens that the server counts in a slot. */
int32_t serve_watched_counted(const struct serve_watched *w, int32_t seq);
/* The tokens of a slot, as far as they are known, [*n]; -1 for those that are not. Until its cells are known, those of the file that it came from. */
static inline const int32_t *serve_watched_tokens(const struct serve_watched *w, int32_t seq, int32_t *n)
{
    const int32_t n_unknown = w->slot_cache[seq].n_unknown;
    if (n_unknown == 0) {
        *n = w->sequences.of[seq].n;
        return w->sequences.of[seq].token;
    }
    *n = n_unknown < w->restored[seq].n ? n_unknown : w->restored[seq].n;
    return w->restored[seq].token;
}
/* Gives back the sample of a slot's prompt. */
void serve_watched_drop_sample(struct serve_watched *w, int32_t seq);
/* Frees the cells that no sequence has any more. */
void serve_watched_bury(struct serve_watched *w);

#endif
