/* SPDX-License-Identifier: MIT */
/* winnow backend: the library that other llama.cpp programs load, and whether it fits theirs. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/profiles.h"
#include "app/text.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/backend_library.h"
#include "cli/commands.h"
#include "winnow_bridge.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints text as one word of a shell. */
static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    putchar('\'');
}

/* Calls a function of a separately opened library that returns a string. */
static const char *ask(void *library, const char *name)
{
    const char *(*function)(void);
    void *p = dlsym(library, name);
    memcpy(&function, &p, sizeof p); /* ISO C has no cast for it */
    return p ? function() : NULL;
}

/* Opens the library and its ggml separately from those of this program. */
static int check(const char *path)
{
    char has[256];
    const char *built = wnw_bridge_built_for();
    if (!built)
        return app_fail(APP_FAILED, "%s", CLI_NO_BACKEND);
    void *library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return app_fail(APP_BAD_INPUT, "cannot open it: %s", dlerror());
    const char *version = ask(library, "ggml_version"), *commit = ask(library, "ggml_commit");
    const bool known = version && commit;
    snprintf(has, sizeof has, "%s %s", known ? version : "", known ? commit : "");
    dlclose(library);
    if (!known)
        return app_fail(APP_BAD_INPUT, "%s contains no ggml that reports its version", path);
    if (strcmp(has, built) != 0)
        return app_fail(
            APP_BAD_INPUT,
            "%s has ggml %s, and the backend is built for %s; for that one: make bridge LLAMA=PREFIX "
            "LLAMA_SOURCE=FOLDER, with its prefix and llama.cpp's sources of that version",
            path, has, built);
    printf("fits: ggml %s\n", has);
    return app_finish_stdout();
}

static void print_export(const char *name, const char *value)
{
    printf("export %s=", name);
    print_quoted(value);
    putchar('\n');
}

/* The profiles by which a model's policies are chosen. */
static int print_profiles(const char *name)
{
    struct app_text list = {0};
    char *model;
    int rc = app_model_path(&model, name);
    if (rc == APP_OK)
        rc = app_profile_list(&list, model);
    if (rc == APP_OK)
        print_export("WINNOW_PROFILE", list.s ? list.s : "");
    free(list.s);
    free(model);
    return rc;
}

int cli_backend(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    char path[4096];
    if (args->path + args->env + (args->check != NULL) != 1)
        return app_fail(APP_BAD_INPUT, "`winnow backend` needs one of --path, --env and --check LLAMA_LIB");
    if (app->model && !args->env)
        return app_fail(APP_BAD_INPUT, "--model goes with --env: it adds the model's profiles");
    if (args->check)
        return check(args->check);
    const char *why = cli_backend_find(path, sizeof path);
    if (why)
        return app_fail(APP_FAILED, "%s", why);
    if (args->path) {
        puts(path);
    } else {
        if (app->model)
            WNW_TRY(print_profiles(app->model));
        print_export("GGML_BACKEND_PATH", path);
    }
    return app_finish_stdout();
}
