/* SPDX-License-Identifier: MIT */
/* The table of benchmarks. */
#include "bench/commands.h"

#include "app/args.h"
#include "bench/args.h"

static const struct app_group *const speed_groups[] = {
    &bench_group_speed, &bench_group_peer, &app_group_plugin, &app_group_devices, &app_group_common, NULL};
static const struct app_group *const batch_groups[] = {&bench_group_batch, &bench_group_peer,
                                                       &app_group_plugin, &app_group_common, NULL};
static const struct app_group *const observe_groups[] = {&bench_group_part, &app_group_common, NULL};
static const struct app_group *const methods_groups[] = {&bench_group_part, &bench_group_methods,
                                                         &app_group_plugin, &app_group_common, NULL};
static const struct app_group *const roofline_groups[] = {&bench_group_roofline, &app_group_plugin,
                                                          &app_group_common, NULL};
const struct app_command bench_commands[] = {
    {.name = "bench",
     .first = "model threads lengths reps policy budget peer csv json help",
     .about = "Speed compared with llama.cpp in one run: full cache and compressed cache.",
     .usage = "[options]",
     .notes =
         "Rounds alternate between the programs; ratios are formed per round, then medians are taken.\n"
         "llama.cpp is a process of its own; `make peers` builds one for this CPU.\n"
         "`winnow bench batch` has several sequences decode together; `winnow bench observe` and\n"
         "`winnow bench methods` measure what policies cost; `winnow bench roofline` compares with what\n"
         "the machine can do.",
     .groups = speed_groups,
     .args_size = sizeof(struct bench_args),
     .run = bench_run_speed},
    {.name = "bench batch",
     .first = "model threads sequences lengths policy ratio peer json help",
     .about = "Tokens per second of several sequences that decode together, compared with llama.cpp.",
     .usage = "[options]",
     .notes =
         "All sequences of one prompt length; the compressed ones keep from half to one and a half times "
         "what\n"
         "--ratio leaves, so that their caches differ. Rounds alternate between the programs; ratios are\n"
         "formed per round, then medians are taken.",
     .groups = batch_groups,
     .args_size = sizeof(struct bench_args),
     .run = bench_run_batch},
    {.name = "bench observe",
     .about = "What each kind of observation costs, as a share of prefill.",
     .usage = "[options]",
     .notes =
         "A round reads the same tokens once with each kind of observation and once with none; shares are\n"
         "formed within a round, then medians are taken.",
     .groups = observe_groups,
     .args_size = sizeof(struct bench_args),
     .run = bench_run_observe},
    {.name = "bench methods",
     .about = "What every preset costs: time and memory in addition to a plain prefill.",
     .usage = "[options]",
     .notes =
         "Every preset reads the same tokens in a session of its own, with plain prefills in between. Peak\n"
         "memory is the process's highest resident size (VmHWM of /proc/self/status, reset before each).",
     .groups = methods_groups,
     .args_size = sizeof(struct bench_args),
     .run = bench_run_methods},
    {.name = "bench roofline",
     .about = "How near each part of prefill and decoding comes to what the machine can do.",
     .usage = "[options]",
     .notes =
         "Measures the read bandwidth and the peaks of float32, bf16 and int8 products with the threads in\n"
         "use, then the time, operations and bytes of each part: of a prompt, of tokens that are decoded, "
         "and of a\n"
         "chunk that is read over the compressed cache. A part's share of the peak is the least\n"
         "time that these allow, divided by the time that it took.",
     .groups = roofline_groups,
     .args_size = sizeof(struct bench_args),
     .run = bench_run_roofline},
    {.name = NULL},
};
