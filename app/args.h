/* SPDX-License-Identifier: MIT */
/* Arguments that sub-commands share, and their options. */
#ifndef WNW_APP_ARGS_H
#define WNW_APP_ARGS_H

#include "app/options.h"
#include "winnow_method.h"

#include <stdbool.h>

/* Targets of the option tables. The arguments of each family of sub-commands begin with this struct. It owns
 * its strings; integers are APP_UNSET and reals NAN if the option is not given. */
struct app_args {
    char *model, *file, *tokens, *question, *chat, *system;
    char *policy, *kv_type, *kv_rotate, *evict, *evict_every, *profile, *attn; /* evict NULL: "end" */
    char *mask_heads, *mask_phase, *mask_form;
    char *out;
    char *devices, *layers;
    struct app_list documents, expected, plugins;
    wnw_registry *registry; /* the parts of the plugins, owned by who runs the command; NULL = none */
    int64_t budget, kv_bytes, kv_tail, kv_peak;
    int64_t n, seed, threads;
    double ratio, keep_quality, chunk_slack;
    bool context_only, raw, special, json, help, help_all;
    char **rest; /* what is left after the options, NULL-terminated, owned */
    int n_rest;
};

/* The option that commands have which parse recipes. */
#define APP_PLUGIN_OPTION(at)                                                                                \
    {                                                                                                        \
        "plugin", 0, APP_TEXTS, "FILE.so", NULL, NULL,                                                       \
            "shared library with parts of your own, which recipes may then name; may be repeated", at, 0, 0, \
            NULL                                                                                             \
    }

/* What the model computes on. */
#define APP_DEVICE_OPTIONS(devices_at, layers_at)                                                       \
    {"devices",                                                                                         \
     0,                                                                                                 \
     APP_TEXT,                                                                                          \
     "NAME,...",                                                                                        \
     NULL,                                                                                              \
     "the CPU",                                                                                         \
     "devices that hold the model and its cache, as `winnow doctor` lists them, or rpc:HOST:PORT of a " \
     "`winnow worker`",                                                                                 \
     devices_at,                                                                                        \
     0,                                                                                                 \
     0,                                                                                                 \
     NULL},                                                                                             \
    {                                                                                                   \
        "layers", 0, APP_TEXT, "N,...", NULL, "by free memory",                                         \
            "layers of the model for each of these devices, as 12,12,6", layers_at, 0, 0, NULL          \
    }

extern const struct app_group app_group_model, app_group_input, app_group_policy, app_group_expect,
    app_group_long, app_group_plugin, app_group_mask, app_group_devices, app_group_common;

#endif
