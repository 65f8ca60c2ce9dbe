/* SPDX-License-Identifier: MIT */
/* What the sub-commands share: arguments, exit codes, messages, files and text. */
#ifndef WNW_CLI_H
#define WNW_CLI_H

#include "winnow.h"
#include <jansson.h>

#include <stdio.h>
#include <sys/types.h>

/* ---- Arguments (options.c) ---- */

#define CLI_UNSET INT64_MIN /* an integer option that was not given and has no default */

/* Targets of the option tables. Strings are owned; integers hold CLI_UNSET and reals NAN when not given. */
struct cli_args {
    char *model, *file, *tokens, *question, *chat, *system;
    char *policy, *kv_type, *evict, *evict_every, *profile, *attn;
    char *out, *csv, *lengths, *policies;
    int64_t budget, kv_bytes;
    int64_t n, seed, top_k, threads, prefix, reps, decode_tokens;
    double ratio, temp, top_p;
    bool context_only, raw, json, markdown, pieces, help;
    char **rest; /* what is left after the options, NULL-terminated, owned */
    int n_rest;
};

enum cli_type {
    CLI_FLAG,
    CLI_TEXT,
    CLI_PROSE, /* text for the model: what is not UTF-8 becomes U+FFFD */
    CLI_INT,
    CLI_REAL,
    CLI_BYTES
};

/* One option: drives parsing, range errors and --help. */
struct cli_option {
    const char *name; /* long name, NULL where there is only a letter */
    char letter;      /* 0 where there is only a name */
    enum cli_type type;
    const char *arg;   /* name of the argument in the help, NULL for flags */
    const char *def;   /* default, parsed like an argument; NULL = none */
    const char *shown; /* how the help names the default where def does not say it; NULL = def */
    const char *help;
    size_t offset; /* of the target in struct cli_args */
    double min, max;
    const char *range; /* the allowed range in words, for numbers */
};

/* Options under one heading. */
struct cli_group {
    const char *title;
    const struct cli_option *options; /* [n] */
    int n;
};

/* A sub-command. */
struct cli_command {
    const char *name;                      /* one word, or two: "bench observe" */
    const char *about;                     /* one sentence */
    const char *usage;                     /* what follows the name */
    const char *notes;                     /* closing paragraph of its help, "" if none */
    const struct cli_group *const *groups; /* NULL-terminated */
    int max_rest;                          /* positional arguments it takes */
    int (*run)(const struct cli_args *args);
};

extern const struct cli_group cli_group_model, cli_group_input, cli_group_policy, cli_group_generate,
    cli_group_plan, cli_group_ppl, cli_group_bench, cli_group_bench_observe, cli_group_bench_methods,
    cli_group_methods, cli_group_tokens, cli_group_common;

/* Parses argv[1..] (argv[0] is the command's name). Returns an exit code; says what is wrong itself. */
int cli_parse(struct cli_args *args, const struct cli_command *cmd, int argc, const char **argv);
void cli_args_clear(struct cli_args *args, const struct cli_command *cmd);
void cli_print_help(FILE *f, const struct cli_command *cmd);

/* The word of the NULL-terminated list nearest to `word`, NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *words);

/* Strict numbers: the whole string, no blanks. An integer beyond the 64 bits becomes INT64_MIN or INT64_MAX,
 * so that it is refused for its size and not for its form. */
bool cli_parse_int(int64_t *out, const char *text);
bool cli_parse_real(double *out, const char *text);
/* A number of bytes with an optional suffix K, M or G (powers of 1024). */
bool cli_parse_bytes(int64_t *out, const char *text);

/* ---- Messages and progress (console.c) ---- */

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD_INPUT = 2 };

/* Exit code for a library status. */
int cli_exit_code(int status);
/* Exit code for a file that cannot be used: bad input, unless the system lacks something. */
int cli_errno_code(int err);
/* Prints "winnow: sentence" as one line on stderr and returns `code`. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with the library's sentence; the code follows from the status. */
int cli_fail_status(int status);
/* A remark on stderr, one line. */
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says why writing to standard output failed, by errno; CLI_FAILED. */
int cli_stdout_failed(void);
/* Flushes stdout; CLI_FAILED if anything written there got lost. */
int cli_finish_stdout(void);
/* A string of any bytes; what is not UTF-8 is replaced. NULL without memory. */
json_t *cli_json_text(const char *s);
/* The numbers in an array; NULL without memory. */
json_t *cli_json_ids(const int32_t *ids, int32_t n);
/* Adds `item`, which is taken over in any case. false and a released list (*list = NULL) without memory, or
 * where list or item are NULL already: a list is whole or it is not there. */
bool cli_json_append(json_t **list, json_t *item);
/* Prints one JSON object and a newline to standard output and releases it; NULL = it could not be made. */
int cli_print_json(json_t *o);

double cli_now_ms(void);
/* A size in /proc/self/status, such as "VmRSS:"; false where the system does not say. */
bool cli_proc_status(uint64_t *bytes, const char *key);
/* Peak resident size of this process in bytes. */
uint64_t cli_peak_rss(void);

/* One progress line on stderr: appears when stderr is a terminal and the work takes longer than 2 s. */
struct cli_progress {
    const char *label, *unit;
    double start_ms, last_ms;
    bool terminal, shown;
};
void cli_progress_start(struct cli_progress *p, const char *label, const char *unit);
/* Has the type of the progress callback of a session; user is a struct cli_progress. Always true. */
bool cli_progress_step(int32_t done, int32_t total, void *user);
void cli_progress_end(struct cli_progress *p);

/* ---- Files (files.c) ---- */

/* The most bytes of a text, which is what the tokenizer takes, and the most ids of a file of them. */
enum { CLI_MAX_TEXT = INT32_MAX / 2, CLI_MAX_IDS = 1 << 28 };
/* Reads a whole file into *data (NUL-terminated, owned: free). Refuses empty files and NUL bytes;
 * what is not UTF-8 becomes U+FFFD. */
int cli_read_file(char **data, size_t *len, const char *path);
/* Reads whitespace separated token ids. *ids is owned: free. */
int cli_read_tokens(int32_t **ids, int32_t *n, const char *path);

/* Where models lie: $WINNOW_CACHE or ~/.cache/winnow. *path is owned: free. */
int cli_cache_path(char **path, const char *tail);
/* Turns the -m argument into a path that can be opened. *path is owned: free. */
int cli_model_path(char **path, const char *name);
extern const char *const cli_model_names[]; /* NULL-terminated, the default first */

/* ---- Output files (output.c) ---- */

/* The files a command reads, told apart by device and inode: no output may take the place of one. */
enum { CLI_MAX_INPUTS = 16 };
struct cli_inputs {
    struct {
        dev_t dev;
        ino_t ino;
    } id[CLI_MAX_INPUTS];
    int n;
};
/* NULL, and what is not there, adds nothing. */
void cli_inputs_add(struct cli_inputs *in, const char *path);

/* A file that appears under its name only when it is complete. One at a time. */
struct cli_out {
    FILE *f;    /* NULL = not open */
    char *path; /* behind symbolic links, owned */
};
/* Whether such a file could be written there; to be asked before the work starts. inputs may be NULL. */
int cli_out_check(const char *path, const struct cli_inputs *inputs);
int cli_out_open(struct cli_out *out, const char *path, const struct cli_inputs *inputs);
/* Writes o and a newline; after a failure the output is aborted. NULL = there was no memory for it. */
int cli_out_json(struct cli_out *out, const json_t *o);
int cli_out_commit(struct cli_out *out);
/* Removes what was written. Nothing happens where nothing is open. */
void cli_out_abort(struct cli_out *out);
/* Removes the unfinished file, if there is one, before the process ends at once. */
void cli_out_discard(void);

/* ---- The end (abort.c) ---- */

/* From now on a failed assertion of ggml is one line on stderr and exit code 1. */
void cli_catch_aborts(void);

/* ---- Text (text.c) ---- */

/* A growing byte string, NUL-terminated. */
struct cli_text {
    char *s;
    size_t len, cap;
};
bool cli_text_add(struct cli_text *t, const char *s, size_t len);
/* Makes room for len bytes in all. */
bool cli_text_reserve(struct cli_text *t, size_t len);
/* Adds s with every invalid UTF-8 sequence replaced by U+FFFD. */
bool cli_text_add_utf8(struct cli_text *t, const char *s, size_t len);
/* The same in place. */
bool cli_text_repair(struct cli_text *t);
/* Length of s without an incomplete UTF-8 sequence at its end. */
size_t cli_utf8_whole(const char *s, size_t len);

/* A log sink of the library that keeps warnings; user is a struct cli_text, one line for each. */
void cli_note_warning(wnw_log_level level, const char *text, void *user);

/* Generated tokens and the text that is ready to be shown. */
struct cli_stream {
    const wnw_model *model;
    FILE *echo;           /* where new text goes at once, NULL = nowhere */
    int32_t *ids;         /* [n], owned */
    int32_t n, cap;       /* generated tokens */
    int32_t base;         /* the text of ids[base..n) is worked out anew for every token */
    size_t done;          /* bytes of that text which are out */
    struct cli_text text; /* all text so far, valid UTF-8, owned */
};
/* Adds a token. Returns an exit code. */
int cli_stream_add(struct cli_stream *st, int32_t token);
/* Lets out what was held back. */
int cli_stream_end(struct cli_stream *st);
void cli_stream_clear(struct cli_stream *st);

/* ---- Profiles (profiles.c) ---- */

struct cli_profile_want {
    const char *given;           /* of --profile: a file or a folder; NULL = none */
    const char *model;           /* as given with -m, for messages */
    const char *model_path;      /* its name without .gguf is that of the model's folder */
    uint32_t required, optional; /* bit sets of wnw_profile_kind */
    double budget;               /* entries per head, chooses among CompilerKV's tables; 0 = not known */
    const char *policy;          /* for messages */
    struct cli_inputs *inputs;   /* the files that were read are added */
};
/* Finds and reads what is wanted; says itself what is missing. *out is owned, NULL where nothing is wanted.
 * Remarks on what was read are added to notes, one a line. */
int cli_profile_load(wnw_profile **out, struct cli_text *notes, const wnw_model *m,
                     const struct cli_profile_want *want);

/* ---- Sub-commands ---- */

int cli_run(const struct cli_args *args);
int cli_plan(const struct cli_args *args);
int cli_tokens(const struct cli_args *args);
int cli_methods(const struct cli_args *args);
/* methods_markdown.c; args->csv: table of `winnow bench methods`, or NULL. */
int cli_methods_markdown(const struct cli_args *args);
/* "window attention, keys" or "nothing"; "end, layer". Written to out, which is returned. */
const char *cli_needs_text(uint32_t needs, char *out, size_t size);
const char *cli_phases_text(uint32_t phases, char *out, size_t size);
int cli_models(const struct cli_args *args);
int cli_ppl(const struct cli_args *args);
int cli_bench(const struct cli_args *args);
int cli_bench_observe(const struct cli_args *args);
int cli_bench_methods(const struct cli_args *args);

#endif
