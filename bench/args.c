/* SPDX-License-Identifier: MIT */
/* Options of the benchmarks. */
#include "bench/args.h"

#define AT(field) offsetof(struct bench_args, field)

static const struct app_option speed_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads for both programs", AT(app.threads),
     1, 512, "1 to 512"},
    {"lengths", 0, APP_TEXT, "LIST", "512,2048,8192", NULL, "context lengths in tokens", AT(lengths), 0, 0,
     NULL},
    {"reps", 0, APP_INT, "N", "3", NULL, "rounds per length; medians are taken over them", AT(reps), 1, 1000,
     "1 to 1000"},
    {"decode-tokens", 0, APP_INT, "N", "32", NULL, "tokens decoded per round", AT(decode_tokens), 1, 4096,
     "1 to 4096"},
    {"policy", 0, APP_TEXT, "RECIPE", "snapkv", NULL, "what the compressed cache keeps", AT(app.policy), 0, 0,
     NULL},
    {"budget", 0, APP_INT, "N", NULL, "1/8 of the length", "entries kept per layer and KV head",
     AT(app.budget), 1, 2147483647, "1 to 2147483647"},
    {"kv-type", 0, APP_TEXT, "TYPE", "f16", NULL, "type of our caches: f16, q8_0, q4_0 or f32",
     AT(app.kv_type), 0, 0, NULL},
    {"kv-rotate", 0, APP_TEXT, "WHETHER", "on", NULL,
     "with q8_0 or q4_0: on spreads outliers of keys and values before they are rounded, off does not",
     AT(app.kv_rotate), 0, 0, NULL},
    {"kv-tail", 0, APP_INT, "N", "0", NULL,
     "with q8_0 or q4_0: keep the last N entries of each head, and the first 64, in f16", AT(app.kv_tail), 0,
     1048576, "0, or 32 to 1048576"},
    {"csv", 0, APP_TEXT, "FILE", NULL, "none", "write every number as a table", AT(csv), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object instead of the table", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(bench_group_speed, "Options", speed_options);

static const struct app_option batch_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads for both programs", AT(app.threads),
     1, 512, "1 to 512"},
    {"sequences", 0, APP_TEXT, "LIST", "1,4,8", NULL, "how many decode together, each 1 to 64", AT(sequences),
     0, 0, NULL},
    {"lengths", 0, APP_TEXT, "LIST", "512", NULL, "prompt lengths in tokens", AT(lengths), 0, 0, NULL},
    {"reps", 0, APP_INT, "N", "3", NULL, "rounds per length; medians are taken over them", AT(reps), 1, 1000,
     "1 to 1000"},
    {"decode-tokens", 0, APP_INT, "N", "32", NULL, "tokens that every sequence decodes per round",
     AT(decode_tokens), 1, 4096, "1 to 4096"},
    {"policy", 0, APP_TEXT, "RECIPE", "snapkv+adakv", NULL, "what the compressed caches keep", AT(app.policy),
     0, 0, NULL},
    {"ratio", 0, APP_REAL, "R", "0.875", NULL, "fraction removed on average, 0 <= R < 1", AT(app.ratio), 0,
     0.9999999999999999, "at least 0 and less than 1"},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object instead of the table", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(bench_group_batch, "Options", batch_options);

static const struct app_option peer_options[] = {
    {"cpu-time", 0, APP_FLAG, NULL, NULL, "off",
     "count CPU time, not the clock's: for a machine that is busy with other work; needs -t 1", AT(cpu_time),
     0, 0, NULL},
    {"peer", 0, APP_TEXT, "PROGRAM", NULL, "that of `make peers`, else own",
     "the llama.cpp to run next to us; `own` = the libllama of this build", AT(peer), 0, 0, NULL},
    {"peer-timeout", 0, APP_INT, "SECONDS", "300", NULL,
     "seconds without a sign of work after which it counts as hanging", AT(peer_timeout), 1, 86400,
     "1 to 86400"},
};
APP_GROUP(bench_group_peer, "Both programs", peer_options);

static const struct app_option part_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"lengths", 0, APP_TEXT, "LIST", "8192", NULL, "prompt lengths in tokens", AT(lengths), 0, 0, NULL},
    {"reps", 0, APP_INT, "N", "3", NULL, "rounds per length; medians are taken over them", AT(reps), 1, 1000,
     "1 to 1000"},
    {"ratio", 0, APP_REAL, "R", "0.5", NULL, "fraction removed, 0 <= R < 1", AT(app.ratio), 0,
     0.9999999999999999, "at least 0 and less than 1"},
    {"csv", 0, APP_TEXT, "FILE", NULL, "none", "write every number as a table", AT(csv), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object instead of the table", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(bench_group_part, "Options", part_options);

static const struct app_option methods_options[] = {
    {"policies", 0, APP_TEXT, "LIST", NULL, "all presets but parity presets",
     "recipes; key=value goes on with the one before", AT(policies), 0, 0, NULL},
    {"profile", 0, APP_TEXT, "PATH", NULL, "those of the model", "calibration results, a file or a folder",
     AT(app.profile), 0, 0, NULL},
    {"markdown", 0, APP_FLAG, NULL, NULL, "off", "print a Markdown table", AT(markdown), 0, 0, NULL},
};
APP_GROUP(bench_group_methods, "Methods", methods_options);

static const struct app_option roofline_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"lengths", 0, APP_TEXT, "LIST", "2048", NULL, "prompt lengths in tokens", AT(lengths), 0, 0, NULL},
    {"reps", 0, APP_INT, "N", "3", NULL, "rounds per length; the one with the median time is shown", AT(reps),
     1, 1000, "1 to 1000"},
    {"decode-tokens", 0, APP_INT, "N", "32", NULL, "tokens decoded per round", AT(decode_tokens), 1, 4096,
     "1 to 4096"},
    {"policy", 0, APP_TEXT, "RECIPE", "snapkv", NULL, "what the compressed cache keeps", AT(app.policy), 0, 0,
     NULL},
    {"ratio", 0, APP_REAL, "R", "0.875", NULL, "fraction removed, 0 <= R < 1", AT(app.ratio), 0,
     0.9999999999999999, "at least 0 and less than 1"},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object instead of the table", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(bench_group_roofline, "Options", roofline_options);
