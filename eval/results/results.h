/* SPDX-License-Identifier: MIT */
/*
 * The results of evaluation runs: DIR/run.json and DIR/results.jsonl. Folders are shards of one run if their
 * run.json differ only in how the run was divided and where it ran. They are read as one run.
 */
#ifndef WNW_EVAL_RESULTS_H
#define WNW_EVAL_RESULTS_H

#include "eval/base/jsonl.h"
#include "eval/base/recipe.h"
#include "eval/base/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum eval_result_flags {
    EVAL_R_BAD = 1,
    EVAL_R_PROTECTED = 2,
    EVAL_R_TRUNCATED = 4,
    EVAL_R_HALVED = 8 /* more than half of the context was cut */
};

/* One line of results.jsonl without its texts. */
struct eval_result {
    int32_t task, variant; /* indices of the run's lists */
    int32_t n_target, index, turn;
    uint32_t flags; /* eval_result_flags */
    uint64_t text;  /* that contains its evidence; 0 = none, or not known */
    int32_t bucket; /* of LongBench's sets: how many words the context has (record.h); 0 = not known */
    int32_t folder; /* where its texts are: index of the run's folders, and the line's first byte */
    int64_t at, line;
    double m[EVAL_N_MEASURES]; /* NaN where the line does not have the number */
};

enum { EVAL_V_ID, EVAL_V_POLICY, EVAL_V_MODE, EVAL_V_SIZE, EVAL_V_KV_TYPE, EVAL_N_NAMES };

/* A method at a size under a protocol. All strings are owned. */
struct eval_variant {
    union {
        struct {
            char *id, *policy, *mode, *size, *kv_type;
        };
        char *name[EVAL_N_NAMES]; /* the same in the order of the fields from EVAL_F_CONFIG on */
    };
    char *canonical; /* its policy as eval_recipe_canonical has it */
    char *more;      /* further settings of run.json, "" for none: "evict=chunk:512" */
    double removed;  /* ratio that was asked for; NaN where the size is no ratio */
    bool full;
    int64_t n_left_out; /* samples that it could not have the size for */
    char *why;          /* the reason of the first of them; NULL = there is none */
};

struct eval_run {
    char **folders; /* [n_folders], owned */
    int32_t n_folders;
    json_t *info; /* run.json of the first folder, owned */
    char *model;  /* its name, owned */
    uint64_t seed;
    char **tasks; /* [n_tasks] names in the order of `winnow eval --list`, owned */
    int32_t n_tasks;
    struct eval_variant *variants; /* [n_variants]: full cache first, then by policy and size, owned */
    int32_t n_variants;
    struct eval_result *results; /* [n] without probes: by task, length, index, turn, variant; owned */
    size_t n;
    struct eval_result *probes; /* [n_probes]: samples that only say whether a task is informative, owned */
    size_t n_probes;
    int64_t n_too_long;            /* samples that the model's context does not hold, of all folders */
    int64_t n_unmade;              /* samples that could not be made, of all folders */
    size_t n_bad, n_twice, n_torn; /* lines without a number; lines that repeat another; lines cut off */
};

struct eval_runs {
    struct eval_run *run; /* [n], owned */
    int32_t n;
};

/* The file of a folder's results: as a run writes it, or packed. The caller frees it; NULL: out of memory. */
char *eval_results_path(const char *folder);

/*
 * Reads folders; shards of one run become one run. Memory is about 300 bytes for each line, regardless of the length of its
 * texts. Returns an exit code and prints its own message: bad input for a folder without run.json or results.jsonl, a
 * line that cannot be used (file and line are named) and lines that contradict each other. A last line that a writer
 * left unfinished is skipped and counted. The caller clears the runs in any case.
 */
int eval_runs_read(struct eval_runs *out, char *const *folders, int32_t n);
void eval_runs_clear(struct eval_runs *runs);

/* The line of a result again, with its texts; the caller releases it. Returns an exit code. */
int eval_result_texts(json_t **line, const struct eval_run *run, const struct eval_result *r);

/* A variant's policy, size and so on in a few words, which differ from those of other variants of the protocol.
 * size: false leaves out the size. The caller frees out->s. Returns false if memory runs out. */
bool eval_variant_label(struct app_text *out, const struct eval_run *run, const struct eval_variant *v,
                        bool size);

/* ---- Pieces (results_line.c, results_sort.c) ---- */

/* Adds a line to the run; names that are new are added to its lists. Returns an exit code. */
int eval_results_add(struct eval_run *run, const struct eval_jsonl *j, int32_t folder, const json_t *line);
/* Puts lists and lines in order and refuses lines that contradict each other. Returns an exit code. */
int eval_results_sort(struct eval_run *run);

#endif
