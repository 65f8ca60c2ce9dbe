/* SPDX-License-Identifier: MIT */
#include "base/llama_log.h"

#include <llama.h>

void wnw__quiet_dependencies(void)
{
    /* libllama does not separate its own callback from ggml's; llama_log_set sets both. */
    ggml_log_callback now, first;
    void *user, *none;
    ggml_log_get(&now, &user);
    if (now == wnw__hear)
        return;
    ggml_log_set(NULL, NULL); /* the callback that a process begins with; it prints */
    ggml_log_get(&first, &none);
    if (now == first)
        llama_log_set(wnw__hear, NULL);
    else
        ggml_log_set(now, user);
}
