/* SPDX-License-Identifier: MIT */
/* Arguments of the command's own sub-commands. */
#ifndef WNW_CLI_ARGS_H
#define WNW_CLI_ARGS_H

#include "app/args.h"

struct cli_args {
    struct app_args app;
    char *costs;
    char *map, *kind;
    int64_t sink, recent;
    int64_t prefix, top_k;
    double temp, top_p, repeat_penalty;
    bool markdown, pieces;
    bool path, env;
    char *check;
    int64_t slots, context, port, timeout;
    char *host, *api_key, *save, *state, *when_full;
    int64_t park, park_disk;
    double park_ratio;
    struct app_list host_names;
    bool no_auth;
    char *resume; /* chat: the file that a conversation goes on from, and is saved to; or one of --state */
    char *api_key_file;
    char *cache, *questions, *store, *compare, *slot;
    struct app_list caches; /* ask: stored documents that follow each other */
    double reread;
    bool store_exact, store_any;
    char *url, *document, *answer;
    int64_t of_slot;
    char *chat_context;
    bool no_history;
    int64_t batch, store_limit;
    char *listen, *device;
    bool trusts_network;
};

extern const struct app_group cli_group_generate, cli_group_plan, cli_group_tokens, cli_group_ppl,
    cli_group_methods, cli_group_backend, cli_group_serve, cli_group_profile_show, cli_group_profile_import,
    cli_group_document, cli_group_stored, cli_group_ask, cli_group_inspect, cli_group_store,
    cli_group_store_list, cli_group_export, cli_group_ctl_page, cli_group_ctl_why, cli_group_chat,
    cli_group_chat_answer, cli_group_doctor, cli_group_man, cli_group_worker;

#endif
