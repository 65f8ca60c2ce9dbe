/* SPDX-License-Identifier: MIT */
/* winnow: the table of sub-commands and the way to them. */
#include "app/app.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const struct cli_group *const run_groups[] = {
    &cli_group_model, &cli_group_input, &cli_group_policy, &cli_group_generate, &cli_group_common, NULL};
static const struct cli_group *const plan_groups[] = {&cli_group_model, &cli_group_input,  &cli_group_policy,
                                                      &cli_group_plan,  &cli_group_common, NULL};
static const struct cli_group *const tokens_groups[] = {&cli_group_model, &cli_group_input, &cli_group_tokens,
                                                        &cli_group_common, NULL};
static const struct cli_group *const ppl_groups[] = {&cli_group_model, &cli_group_ppl, &cli_group_policy,
                                                     &cli_group_common, NULL};
static const struct cli_group *const bench_groups[] = {&cli_group_bench, &cli_group_common, NULL};
static const struct cli_group *const bench_observe_groups[] = {&cli_group_bench_observe, &cli_group_common,
                                                               NULL};
static const struct cli_group *const bench_methods_groups[] = {&cli_group_bench_methods, &cli_group_common,
                                                               NULL};
static const struct cli_group *const methods_groups[] = {&cli_group_methods, &cli_group_common, NULL};
static const struct cli_group *const plain_groups[] = {&cli_group_common, NULL};

static const struct cli_command commands[] = {
    {"run", "Reads a prompt, compresses its KV cache and generates an answer.",
     "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--policy RECIPE] [SIZE] [options]",
     "At least one of -f, --tokens and -p must be given. The answer goes to standard output,\n"
     "everything else to standard error.",
     run_groups, 0, cli_run},
    {"plan", "Reads a prompt and writes which cache entries would be kept; generates nothing.",
     "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--policy RECIPE] [SIZE] -o FILE",
     "The file appears only when it is complete.", plan_groups, 0, cli_plan},
    {"tokens", "Prints the token ids of a prompt as `run` reads them.",
     "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--system TEXT] [--raw | --chat NAME] [--pieces]", "",
     tokens_groups, 0, cli_tokens},
    {"methods", "Lists presets and parts of policies, or describes one of them.", "[NAME]", "",
     methods_groups, 1, cli_methods},
    {"models", "Lists the models that have a name, and whether they are in the cache folder.", "",
     "The cache folder is $WINNOW_CACHE, or ~/.cache/winnow.", plain_groups, 0, cli_models},
    {"ppl", "Perplexity of a text, with the full cache or after compressing its first part.",
     "[-m MODEL] -f TEXT [--policy RECIPE] [SIZE] [--prefix N] [options]",
     "With --policy full and the same --prefix, the same tokens are scored: use that to compare.", ppl_groups,
     0, cli_ppl},
    {"bench", "Speed beside llama.cpp in one run: full cache and compressed cache.", "[options]",
     "Rounds alternate between the programs; ratios are formed per round, then medians are taken.\n"
     "`winnow bench observe` and `winnow bench methods` measure what policies cost.",
     bench_groups, 0, cli_bench},
    {"bench observe", "What each kind of observation costs, as a share of prefill.", "[options]",
     "A round reads the same tokens once with each kind of observation and once with none; shares are\n"
     "formed within a round, then medians are taken.",
     bench_observe_groups, 0, cli_bench_observe},
    {"bench methods", "What every preset costs: time and memory beside a plain prefill.", "[options]",
     "Every preset reads the same tokens in a session of its own; plain prefills lie between them. Peak\n"
     "memory is the process's highest resident size (VmHWM of /proc/self/status, reset before each).",
     bench_methods_groups, 0, cli_bench_methods},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const char *const later_commands[] = {"compress", "ask",  "calibrate", "inspect", "serve",
                                             "rpc",      "eval", "report",    NULL};

static void print_overview(FILE *f)
{
    fputs("winnow: language models with a compressed KV cache\n\nusage: winnow COMMAND "
          "[options]\n\nCommands:\n",
          f);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-14s %s\n", commands[i].name, commands[i].about);
    fputs("  help CMD       The options of a command; so does `winnow CMD --help`.\n"
          "\n  --version      Print the version.\n\n"
          "Example: winnow run -f doc.txt -p \"What is it about?\" --policy snapkv --budget 512\n",
          f);
}

/* Whether `second` (may be NULL) is the second word of the command's name. */
static bool is_two_words(const struct cli_command *cmd, const char *first, const char *second)
{
    const size_t len = strlen(first);
    return second && strncmp(cmd->name, first, len) == 0 && cmd->name[len] == ' ' &&
           strcmp(cmd->name + len + 1, second) == 0;
}

/* NULL and one line on stderr if there is no such command. *n_words of the arguments are its name. */
static const struct cli_command *find_command(const char *name, const char *second, int *n_words)
{
    const char *names[N_COMMANDS + 2];
    *n_words = 2;
    for (int i = 0; i < N_COMMANDS; i++)
        if (is_two_words(&commands[i], name, second))
            return &commands[i];
    *n_words = 1;
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
        names[i] = commands[i].name;
    }
    names[N_COMMANDS] = "help";
    names[N_COMMANDS + 1] = NULL;
    for (int i = 0; later_commands[i]; i++) {
        if (strcmp(name, later_commands[i]) == 0) {
            cli_fail(CLI_BAD_INPUT, "`winnow %s` is not there yet; `winnow --help` lists the commands", name);
            return NULL;
        }
    }
    const char *near = cli_nearest(name, names);
    if (near)
        cli_fail(CLI_BAD_INPUT, "unknown command '%s'; did you mean `winnow %s`?", name, near);
    else
        cli_fail(CLI_BAD_INPUT, "unknown command '%s'; `winnow --help` lists the commands", name);
    return NULL;
}

static int help(int n, char **words)
{
    int n_words;
    if (n == 0) {
        print_overview(stdout);
        return cli_finish_stdout();
    }
    const struct cli_command *cmd = find_command(words[0], n > 1 ? words[1] : NULL, &n_words);
    if (!cmd)
        return CLI_BAD_INPUT;
    if (n > n_words)
        return cli_fail(CLI_BAD_INPUT, "`winnow help` takes one command");
    cli_print_help(stdout, cmd);
    return cli_finish_stdout();
}

/* A standard descriptor that is closed would be given to the next file that is opened, a model or an output,
 * and messages would be written into it. A file that refuses what the descriptor is for takes its place. */
static bool hold_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!hold_descriptors())
        return CLI_FAILED;
    /* A file that may not grow is a write that fails, which is said and cleaned up. */
    signal(SIGXFSZ, SIG_IGN);
    cli_catch_aborts();
    if (argc < 2)
        return cli_fail(CLI_BAD_INPUT, "no command; `winnow --help` lists them");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("winnow %s\n", wnw_version());
        return cli_finish_stdout();
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(0, NULL);
    if (strcmp(name, "help") == 0)
        return help(argc - 2, argv + 2);
    int n_words;
    const struct cli_command *cmd = find_command(name, argc > 2 ? argv[2] : NULL, &n_words);
    if (!cmd)
        return CLI_BAD_INPUT;
    struct cli_args args;
    int rc = cli_parse(&args, cmd, argc - n_words, (const char **)argv + n_words);
    if (rc == CLI_OK && args.help) {
        cli_print_help(stdout, cmd);
        rc = cli_finish_stdout();
    } else if (rc == CLI_OK) {
        rc = cmd->run(&args);
    }
    cli_args_clear(&args, cmd);
    return rc;
}
