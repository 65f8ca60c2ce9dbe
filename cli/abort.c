/* SPDX-License-Identifier: MIT */
/*
 * What ggml cannot go on from. It then ends the process, whoever calls it; a command can at least say so in
 * one line and leave no unfinished file. (The library does not install this: the hook belongs to the
 * program.)
 */
#include "app/app.h"

#include <ggml.h>
#include <unistd.h>

/* Called by ggml_abort in its own or a thread of ggml's; ggml calls abort() when it returns. */
static void last_words(const char *message)
{
    cli_fail(CLI_FAILED, "ggml gave up: %.200s; is the model file damaged?", message);
    cli_out_discard();
    _exit(CLI_FAILED);
}

void cli_catch_aborts(void)
{
    ggml_set_abort_callback(last_words);
}
