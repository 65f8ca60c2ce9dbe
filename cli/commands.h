/* SPDX-License-Identifier: MIT */
/* The command's own sub-commands. */
#ifndef WNW_CLI_COMMANDS_H
#define WNW_CLI_COMMANDS_H

#include "app/options.h"
#include "cli/args.h"

#include <stdint.h>

extern const struct app_command cli_commands[]; /* ended by a name of NULL */

int cli_run(const struct app_args *args);
int cli_chat(const struct app_args *args);
int cli_plan(const struct app_args *args);
int cli_tokens(const struct app_args *args);
int cli_methods(const struct app_args *args);
int cli_doctor(const struct app_args *args);
int cli_man(const struct app_args *args);
int cli_completion(const struct app_args *args);
int cli_models(const struct app_args *args);
int cli_ppl(const struct app_args *args);
int cli_backend(const struct app_args *args);
int cli_compress(const struct app_args *args);
int cli_ask(const struct app_args *args);
int cli_store_list(const struct app_args *args);
int cli_store_rm(const struct app_args *args);
int cli_store_check(const struct app_args *args);
int cli_store_du(const struct app_args *args);
int cli_inspect(const struct app_args *args);
int cli_export(const struct app_args *args);
int cli_serve(const struct app_args *args);
int cli_worker(const struct app_args *args);
int cli_ctl_page(const struct app_args *args);
int cli_ctl_why(const struct app_args *args);
int cli_profile_show(const struct app_args *args);
int cli_profile_import(const struct app_args *args);

/* methods_markdown.c: prints docs/reference/methods.md; costs: table of `winnow bench methods`, or NULL. */
int cli_methods_markdown(const char *costs);

#endif
