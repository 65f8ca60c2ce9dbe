/* SPDX-License-Identifier: MIT */
/* winnow: from the arguments to a sub-command. */
#include "cli/program.h"

#include "app/args.h"
#include "app/console.h"
#include "app/options.h"
#include "app/plugins.h"
#include "app/wrap.h"
#include "base/err.h"
#include "cli/find.h"
#include "winnow.h"

#include <stdlib.h>
#include <string.h>

static void print_command(FILE *f, const char *name, const char *about, int width)
{
    fprintf(f, "  %-*s ", width, name);
    app_wrap(f, about, width + 3, width + 3, app_wrap_columns(f));
}

/* Lists commands, or those whose first word is `family`. */
static void print_commands(FILE *f, const char *family)
{
    int width = 0;
    const struct app_command *c;
    for (int i = 0; (c = cli_command(i)); i++)
        if ((!family || cli_is_of(c, family)) && (int)strlen(c->name) > width)
            width = (int)strlen(c->name);
    fputs("Commands:\n", f);
    for (int i = 0; (c = cli_command(i)); i++)
        if (!family || cli_is_of(c, family))
            print_command(f, c->name, c->about, width);
    if (!family)
        print_command(f, "help CMD", "Prints the options of a command, as `winnow CMD --help` does.", width);
}

static void print_overview(FILE *f)
{
    fputs("winnow: language models with a compressed KV cache\n\nusage: winnow COMMAND [options]\n\n", f);
    print_commands(f, NULL);
    fputs("\n  --version      Print the version.\n\n"
          "Example: winnow run -f doc.txt -p \"Who signs for repairs?\" --ratio 0.5\n",
          f);
}

/* What `winnow` prints without a command: what a first day needs. */
static void print_first(FILE *f)
{
    fputs("winnow: language models with a compressed KV cache\n\n"
          "  winnow run -f doc.txt -p \"question\" --ratio 0.5    reads, compresses and answers\n"
          "  winnow compress -f doc.txt --ratio 0.5 -o doc.wkv  stores the compressed document\n"
          "  winnow ask -c doc.wkv -p \"question\"                answers without reading it again\n"
          "  winnow chat -f doc.txt                             talks about it\n"
          "  winnow serve                                       serves a model over HTTP\n"
          "  winnow doctor                                      checks this machine and installation\n\n"
          "-m FILE.gguf names your own model. `winnow --help` lists all commands.\n",
          f);
}

/* The commands of two words that begin with one. false: there are none, or it is a command itself. */
static bool print_family(const char *family)
{
    const struct app_command *c;
    bool found = false;
    for (int i = 0; (c = cli_command(i)); i++) {
        if (strcmp(c->name, family) == 0)
            return false;
        found = found || cli_is_of(c, family);
    }
    if (!found)
        return false;
    printf("usage: winnow %s WHAT [options]\n\n", family);
    print_commands(stdout, family);
    printf("\n`winnow help %s WHAT` has the options.\n", family);
    return true;
}

static int help(int n, char **words)
{
    int n_words;
    if (n == 0) {
        print_overview(stdout);
        return app_finish_stdout();
    }
    if (n == 1 && print_family(words[0]))
        return app_finish_stdout();
    const struct app_command *cmd = cli_find_command(words[0], n > 1 ? words[1] : NULL, &n_words);
    if (!cmd)
        return APP_BAD_INPUT;
    if (n > n_words)
        return app_fail(APP_BAD_INPUT, "`winnow help` takes one command");
    app_print_help(stdout, cmd, false);
    return app_finish_stdout();
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help-all") == 0;
}

static int run_parsed(struct app_args *args, const struct app_command *cmd, wnw_registry *registry)
{
    if (args->help || args->help_all) {
        app_print_help(stdout, cmd, args->help_all);
        return app_finish_stdout();
    }
    args->registry = registry;
    WNW_TRY(app_plugins_open(&args->registry, &args->plugins));
    return cmd->run(args);
}

/* registry: parts that are there without a plugin, borrowed; NULL = none. */
static int run(const struct app_command *cmd, int argc, const char **argv, wnw_registry *registry)
{
    struct app_args *args = calloc(1, cmd->args_size);
    if (!args)
        return app_fail(APP_FAILED, "out of memory");
    int rc = app_parse(args, cmd, argc, argv);
    if (rc == APP_OK)
        rc = run_parsed(args, cmd, registry);
    if (args->registry != registry)
        wnw_registry_free(args->registry);
    app_args_clear(args, cmd);
    free(args);
    return rc;
}

int cli_program(int argc, char **argv, wnw_registry *registry)
{
    if (argc < 2) {
        print_first(stdout);
        return app_finish_stdout();
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("winnow %s\n", wnw_version());
        return app_finish_stdout();
    }
    if (asks_help(name))
        return help(0, NULL);
    if (strcmp(name, "help") == 0)
        return help(argc - 2, argv + 2);
    if (argc == 3 && asks_help(argv[2]) && print_family(name))
        return app_finish_stdout();
    int n_words;
    const struct app_command *cmd = cli_find_command(name, argc > 2 ? argv[2] : NULL, &n_words);
    if (!cmd)
        return APP_BAD_INPUT;
    return run(cmd, argc - n_words, (const char **)argv + n_words, registry);
}
