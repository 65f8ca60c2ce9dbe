/* SPDX-License-Identifier: MIT */
/* The benchmarks: winnow bench. */
#ifndef WNW_BENCH_COMMANDS_H
#define WNW_BENCH_COMMANDS_H

#include "app/options.h"

extern const struct app_command bench_commands[]; /* ended by a name of NULL */

/* These are defined in speed.c, batch.c, observe.c, methods.c and roofline.c. They return exit codes. */
int bench_run_speed(const struct app_args *args);
int bench_run_batch(const struct app_args *args);
int bench_run_observe(const struct app_args *args);
int bench_run_methods(const struct app_args *args);
int bench_run_roofline(const struct app_args *args);

#endif
