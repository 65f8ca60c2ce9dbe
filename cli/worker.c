/* SPDX-License-Identifier: MIT */
/* winnow worker: a device of this machine for programs on others. */
#include "app/console.h"
#include "app/devices.h"
#include "cli/args.h"
#include "cli/backend_library.h"
#include "cli/commands.h"
#include "winnow_bridge.h"
#include "winnow_tools.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { OWN_PAGES = 64 << 10 };

/* Programs free keys and values in parts of this size and more. Each is mapped by itself, so that its memory goes back. */
static void give_memory_back(void)
{
    mallopt(M_MMAP_THRESHOLD, OWN_PAGES);
    mallopt(M_TRIM_THRESHOLD, 2 * OWN_PAGES);
}

int cli_worker(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    const char *address = args->listen ? args->listen : "127.0.0.1:50052";
    if (!wnw_bridge_built_for())
        return app_fail(APP_FAILED, "%s", CLI_NO_BACKEND);
    if (!wnw_bridge_is_address(address))
        return app_fail(APP_BAD_INPUT,
                        "'%s' is no address: it is HOST:PORT, as 127.0.0.1:50052, over IPv4 alone, with a "
                        "port from 1 to 65535",
                        address);
    if (!args->trusts_network && !wnw_bridge_is_loopback(address))
        return app_fail(
            APP_BAD_INPUT,
            "%s is not on the loopback interface, 127.0.0.1:PORT: anyone who can connect can run code "
            "here; if all of them are trusted, pass --i-trust-this-network",
            address);
    const int32_t threads = app->threads > 0 ? (int32_t)app->threads : wnw_usable_cores();
    give_memory_back();
    unsetenv("WINNOW_DEVICES"); /* a worker is around none */
    app_devices_name_modules();
    setvbuf(stdout, NULL, _IOLBF, 0); /* who reads a log sees who connects */
    const int rc = wnw_bridge_worker(address, args->device, threads);
    return app_fail(rc == WNW_E_ARG ? APP_BAD_INPUT : APP_FAILED, "%s", wnw_last_error());
}
