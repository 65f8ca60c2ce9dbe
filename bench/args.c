/* SPDX-License-Identifier: MIT */
/* Options of the benchmarks. */
#include "bench/args.h"

#define AT(field) offsetof(struct bench_args, field)

/* Rows that several tables have. */
#define MODEL                                                                                               \
    {                                                                                                       \
        "model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`", \
            AT(app.model), 0, 0, NULL                                                                       \
    }
#define THREADS(help)                                                                                       \
    {                                                                                                       \
        "threads", 't', APP_INT, "THREADS", NULL, "usable cores", help, AT(app.threads), 1, 512, "1 to 512" \
    }
#define LENGTHS(def, help)                                                       \
    {                                                                            \
        "lengths", 0, APP_TEXT, "LIST", def, NULL, help, AT(lengths), 0, 0, NULL \
    }
#define REPS(help)                                                               \
    {                                                                            \
        "reps", 0, APP_INT, "N", "3", NULL, help, AT(reps), 1, 1000, "1 to 1000" \
    }
#define DECODE_TOKENS(help)                                                                         \
    {                                                                                               \
        "decode-tokens", 0, APP_INT, "N", "32", NULL, help, AT(decode_tokens), 1, 4096, "1 to 4096" \
    }
#define POLICY(def, help)                                                            \
    {                                                                                \
        "policy", 0, APP_TEXT, "RECIPE", def, NULL, help, AT(app.policy), 0, 0, NULL \
    }
#define RATIO(def, help)                                                                  \
    {                                                                                     \
        "ratio", 0, APP_REAL, "R", def, NULL, help, AT(app.ratio), 0, 0.9999999999999999, \
            "at least 0 and less than 1"                                                  \
    }
#define CSV                                                                                          \
    {                                                                                                \
        "csv", 0, APP_TEXT, "FILE", NULL, NULL, "write every number as a table", AT(csv), 0, 0, NULL \
    }
#define JSON                                                                                               \
    {                                                                                                      \
        "json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object instead of the table", AT(app.json), \
            0, 0, NULL                                                                                     \
    }

static const struct app_option speed_options[] = {
    MODEL,
    THREADS("threads for both programs"),
    LENGTHS("512,2048,8192", "context lengths in tokens"),
    REPS("rounds per length; medians are taken over them"),
    DECODE_TOKENS("tokens decoded per round"),
    POLICY("snapkv", "what the compressed cache keeps"),
    {"budget", 0, APP_INT, "N", NULL, "1/8 of the length", "entries kept per layer and KV head",
     AT(app.budget), 1, 2147483647, "1 to 2147483647"},
    {"kv-type", 0, APP_TEXT, "TYPE", "f16", NULL, "type of winnow's caches: f16, q8_0, q4_0 or f32",
     AT(app.kv_type), 0, 0, NULL},
    {"kv-rotate", 0, APP_TEXT, "WHETHER", "on", NULL,
     "with q8_0 or q4_0: on rotates keys and values before rounding, off does not", AT(app.kv_rotate), 0, 0,
     NULL},
    {"kv-tail", 0, APP_INT, "N", "0", NULL,
     "with q8_0 or q4_0: keep the last N entries of each head, and the first 64, in f16", AT(app.kv_tail), 0,
     1048576, "0, or 32 to 1048576"},
    {"bridge", 0, APP_FLAG, NULL, NULL, NULL, "also measure libllama over winnow's backend, with both caches",
     AT(bridge), 0, 0, NULL},
    CSV,
    JSON,
};
APP_GROUP(bench_group_speed, "Options", speed_options);

static const struct app_option batch_options[] = {
    MODEL,
    THREADS("threads for both programs"),
    {"sequences", 0, APP_TEXT, "LIST", "1,4,8", NULL, "how many decode together, each 1 to 64", AT(sequences),
     0, 0, NULL},
    LENGTHS("512", "prompt lengths in tokens"),
    REPS("rounds per length; medians are taken over them"),
    DECODE_TOKENS("tokens that every sequence decodes per round"),
    POLICY("snapkv+adakv", "what the compressed caches keep"),
    RATIO("0.875", "fraction removed on average, 0 <= R < 1"),
    JSON,
};
APP_GROUP(bench_group_batch, "Options", batch_options);

static const struct app_option peer_options[] = {
    {"cpu-time", 0, APP_FLAG, NULL, NULL, NULL,
     "measure CPU time, for a machine that is busy with other work; needs -t 1", AT(cpu_time), 0, 0, NULL},
    {"peer", 0, APP_TEXT, "PROGRAM", NULL, "that of `make peers`, else own",
     "the llama.cpp to compare with; `own` = the libllama of this build", AT(peer), 0, 0, NULL},
    {"peer-timeout", 0, APP_INT, "SECONDS", "300", NULL,
     "seconds without progress after which that program counts as hung", AT(peer_timeout), 1, 86400,
     "1 to 86400"},
};
APP_GROUP(bench_group_peer, "Both programs", peer_options);

static const struct app_option part_options[] = {
    MODEL,
    THREADS("threads to compute with"),
    LENGTHS("8192", "prompt lengths in tokens"),
    REPS("rounds per length; medians are taken over them"),
    RATIO("0.5", "fraction removed, 0 <= R < 1"),
    CSV,
    JSON,
};
APP_GROUP(bench_group_part, "Options", part_options);

static const struct app_option methods_options[] = {
    {"policies", 0, APP_TEXT, "LIST", NULL, "all presets but parity presets",
     "recipes; key=value continues the one before", AT(policies), 0, 0, NULL},
    {"profile", 0, APP_TEXT, "PATH", NULL, "those of the model", "calibration results, a file or a folder",
     AT(app.profile), 0, 0, NULL},
    {"markdown", 0, APP_FLAG, NULL, NULL, NULL, "print a Markdown table", AT(markdown), 0, 0, NULL},
};
APP_GROUP(bench_group_methods, "Methods", methods_options);

static const struct app_option roofline_options[] = {
    MODEL,
    THREADS("threads to compute with"),
    LENGTHS("2048", "prompt lengths in tokens"),
    REPS("rounds per length; the one with the median time is shown"),
    DECODE_TOKENS("tokens decoded per round"),
    POLICY("snapkv", "what the compressed cache keeps"),
    RATIO("0.875", "fraction removed, 0 <= R < 1"),
    JSON,
};
APP_GROUP(bench_group_roofline, "Options", roofline_options);
