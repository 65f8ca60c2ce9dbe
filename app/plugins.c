/* SPDX-License-Identifier: MIT */
#include "app/plugins.h"

#include "app/console.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int app_plugins_open(wnw_registry **registry, const struct app_list *plugins)
{
    int status = plugins->n > 0 && !*registry ? wnw_registry_new(registry) : WNW_OK;
    for (int i = 0; status == WNW_OK && i < plugins->n; i++) {
        if (access(plugins->s[i], R_OK) != 0)
            return app_fail(app_errno_code(errno), "cannot read the plugin '%s': %s", plugins->s[i],
                            strerror(errno));
        status = wnw_registry_load(*registry, plugins->s[i]);
    }
    return app_status_code(status);
}
