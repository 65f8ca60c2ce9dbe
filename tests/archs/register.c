/* SPDX-License-Identifier: MIT */
/* Makes a program of llama.cpp's know the device WINNOW, and says on stderr what becomes of each cache. */
#include "winnow_bridge.h"

#include <stdio.h>
#include <stdlib.h>

static void say(wnw_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    fprintf(stderr, "%s\n", line);
}

__attribute__((constructor)) static void register_device(void)
{
    wnw_set_log(say, NULL);
    if (wnw_bridge_register() != WNW_OK) {
        fprintf(stderr, "%s\n", wnw_last_error());
        exit(2);
    }
}
