/* SPDX-License-Identifier: MIT */
/* Our backend as a device of the libllama that runs in a process of its own (bench/llama/serve.h). */
#ifndef WNW_BENCH_BRIDGE_H
#define WNW_BENCH_BRIDGE_H

#include "bench/llama/serve.h"

/* Static. */
const struct bench_llama_device *bench_bridge_device(void);

#endif
