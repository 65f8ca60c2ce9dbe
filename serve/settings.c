/* SPDX-License-Identifier: MIT */
/* The settings of the process, and how it ends where they are refused. */
#include "serve/config.h"

#include "app/console.h"
#include "winnow_bridge.h"

#include <stdio.h>
#include <unistd.h>

/* One for the process, written before main. */
static struct serve_config settings;

struct serve_config *serve_settings_begin(void)
{
    return &settings;
}

const struct serve_config *serve_settings(void)
{
    return &settings;
}

int serve_check_policy(const wnw_policy *policy)
{
    return wnw_bridge_check_policy_on(settings.device, policy, settings.profile);
}

static void end(int code, const char *what) __attribute__((noreturn));
static void end(int code, const char *what)
{
    app_note("%s", what);
    fflush(stderr);
    _exit(code);
}

void serve_refuse(const char *what)
{
    end(1, what);
}

void serve_refuse_input(const char *what)
{
    end(2, what);
}
