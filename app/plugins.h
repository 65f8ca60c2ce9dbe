/* SPDX-License-Identifier: MIT */
/* The plugins of a command. */
#ifndef WNW_APP_PLUGINS_H
#define WNW_APP_PLUGINS_H

#include "app/options.h"
#include "winnow_method.h"

/* Makes a registry of the parts in the plugins, if there are any; one that *registry has already gets them. The caller frees it with
 * wnw_registry_free. Returns an exit code. */
int app_plugins_open(wnw_registry **registry, const struct app_list *plugins);

#endif
