/* SPDX-License-Identifier: MIT */
/* What the package calls in addition to the public functions. */
#include "python/entry.h"

#include "app/stop.h"
#include "cli/program.h"

int wnw_python_command(int argc, char **argv, wnw_registry *registry)
{
    app_stop_forget();
    const int rc = cli_program(argc, argv, registry);
    app_stop_unwatch();
    return rc;
}
