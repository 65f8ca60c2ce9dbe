/* SPDX-License-Identifier: MIT */
/* What ggml calls in a library that it loads; only libggml-winnow.so has it. Its host program knows nothing of us, so that
 * warnings go to standard error. */
#include "base/err.h"
#include "bridge/bridge.h"

#include <stdio.h>

WNW_API ggml_backend_reg_t ggml_backend_init(void);

static void say(wnw_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= WNW_LOG_WARN || wnw__bridge_is_set("WINNOW_VERBOSE"))
        fprintf(stderr, "%s\n", text);
}

ggml_backend_reg_t ggml_backend_init(void)
{
    ggml_backend_reg_t reg;
    wnw_set_log(say, NULL);
    if (wnw__bridge_check(&reg) == WNW_OK)
        return reg;
    wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error()); /* ggml's own line says only that it failed */
    return NULL;
}
