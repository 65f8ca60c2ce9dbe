/* SPDX-License-Identifier: MIT */
/* llama.cpp's program ends while another thread still writes its lines, and the last family would be missing. */
#include "log.h"

#include <cstdlib>

static void flush()
{
    common_log_flush(common_log_main());
}

/* The log is made first, so that it is still there. */
__attribute__((constructor)) static void flush_at_end()
{
    (void)common_log_main();
    std::atexit(flush);
}
