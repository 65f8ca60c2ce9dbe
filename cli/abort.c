/* SPDX-License-Identifier: MIT */
/*
 * Failed assertions of ggml, and mapped files that are cut off. ggml ends the process then; the command can at least print one line and leave no
 * unfinished file. (The library does not install this: the hook belongs to the program.)
 */
#include "cli/abort.h"

#include "app/console.h"
#include "app/cut.h"
#include "app/output.h"
#include "base/said.h"

#include <ggml.h>
#include <stdatomic.h>
#include <unistd.h>

/*
 * ggml_abort calls this in the calling thread or in one of ggml's; ggml calls abort() when it returns. Threads that compute together may fail
 * together: the first one writes the line, the others wait for it to end the process.
 */
static void last_words(const char *message)
{
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&ending))
        pause();
    app_fail(APP_FAILED, "ggml gave up: %.200s; is the model file damaged?",
             wnw__said_without_place(message));
    app_out_discard();
    _exit(APP_FAILED);
}

void cli_catch_aborts(void)
{
    ggml_set_abort_callback(last_words);
    app_catch_cuts();
}
