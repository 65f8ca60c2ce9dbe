/* SPDX-License-Identifier: MIT */
/* What ggml calls in a library that it loads; only libggml-winnow.so has it. Its host program knows nothing of us, so that
 * warnings go to standard error. */
#include "base/err.h"
#include "bridge/device/device.h"
#include "winnow_bridge.h"

#include <stdio.h>

WNW_API ggml_backend_reg_t ggml_backend_init(void);

/* Values of the environment that are quoted must not break the line. */
static void say(wnw_log_level level, const char *text, void *user)
{
    char line[1024];
    (void)user;
    if (level < WNW_LOG_WARN && !wnw__bridge_is_set("WINNOW_VERBOSE"))
        return;
    snprintf(line, sizeof line, "%s", text);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "%s\n", line);
}

/* Before anything of the library runs: programs also load it by themselves and register the device (wnw_bridge_register).
 * Those that want the lines elsewhere call wnw_set_log. */
__attribute__((constructor)) static void begin(void)
{
    wnw_set_log(say, NULL);
}

ggml_backend_reg_t ggml_backend_init(void)
{
    ggml_backend_reg_t reg;
    if (wnw__bridge_check(&reg) == WNW_OK && wnw_bridge_load_modules() == WNW_OK &&
        wnw__bridge_wrap_named(reg) == WNW_OK)
        return reg;
    wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error()); /* ggml's own line says only that it failed */
    return NULL;
}
