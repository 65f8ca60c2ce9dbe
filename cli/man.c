/* SPDX-License-Identifier: MIT */
/* winnow man: manual pages from the tables of commands and options. */
#include "app/console.h"
#include "app/output.h"
#include "base/err.h"
#include "cli/commands.h"
#include "cli/find.h"
#include "winnow.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_PROGRAM = 127 }; /* what a shell returns for a program that is not there */

/* Text of roff on lines of its own: nothing in it is a request, and hyphens are those of a keyboard. */
static void put_text(FILE *f, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", f);
        start = *text == '\n';
        switch (*text) {
        case '\\':
            fputs("\\e", f);
            break;
        case '-':
            fputs("\\-", f);
            break;
        case '`':
            fputs("\\(ga", f);
            break;
        case '\'':
            fputs("\\(aq", f);
            break;
        case '^':
            fputs("\\(ha", f);
            break;
        case '~':
            fputs("\\(ti", f);
            break;
        case '"':
            fputs("\\(dq", f);
            break;
        default:
            putc(*text, f);
        }
    }
}

static void put_line(FILE *f, const char *text)
{
    put_text(f, text);
    putc('\n', f);
}

/* Writes a name with hyphens in place of blanks, "bench-observe". */
static void put_name(FILE *f, const char *name)
{
    for (; *name; name++)
        fputs(*name == ' ' ? "\\-" : (char[]){*name, '\0'}, f);
}

/* The heading; command NULL: of winnow itself. */
static void begin(FILE *f, const struct app_command *command, const char *about)
{
    fputs(".TH WINNOW", f);
    for (const char *p = command ? command->name : ""; *p; p++) {
        const int upper = *p >= 'a' && *p <= 'z' ? *p - 32 : *p;
        fprintf(f, "%s%c", p == command->name ? "\\-" : "", *p == ' ' ? '-' : upper);
    }
    fprintf(f, " 1 \"\" \"winnow %s\" \"winnow\"\n.SH NAME\nwinnow", wnw_version());
    if (command) {
        fputs("\\-", f);
        put_name(f, command->name);
    }
    fputs(" \\- ", f);
    put_line(f, about);
}

static void put_option(FILE *f, const struct app_option *o)
{
    fputs(".TP\n", f);
    if (o->letter)
        fprintf(f, "\\fB\\-%c\\fR%s", o->letter, o->name ? ", " : "");
    if (o->name) {
        fputs("\\fB\\-\\-", f);
        put_text(f, o->name);
        fputs("\\fR", f);
    }
    if (o->arg) {
        fputs(" \\fI", f);
        put_text(f, o->arg);
        fputs("\\fR", f);
    }
    putc('\n', f);
    put_text(f, o->help);
    const char *def = o->shown ? o->shown : o->def;
    if (def) {
        fputs(" [", f);
        put_text(f, def);
        fputs("]", f);
    }
    putc('\n', f);
}

static void put_page(FILE *f, const struct app_command *command)
{
    begin(f, command, command->about);
    fputs(".SH SYNOPSIS\n.B winnow ", f);
    put_text(f, command->name);
    if (*command->usage) {
        putc('\n', f);
        put_text(f, command->usage);
    }
    fputs("\n.SH OPTIONS\n", f);
    for (int g = 0; command->groups[g]; g++) {
        fputs(".SS ", f);
        put_line(f, command->groups[g]->title);
        for (int i = 0; i < command->groups[g]->n; i++)
            put_option(f, &command->groups[g]->options[i]);
    }
    if (*command->notes) {
        fputs(".SH NOTES\n", f);
        put_line(f, command->notes);
    }
    fputs(".SH EXIT STATUS\n0 if all went well, 2 if an argument or an input cannot be used, 1 after any "
          "other failure.\n"
          ".SH SEE ALSO\n.BR winnow (1)\n",
          f);
}

static void put_overview(FILE *f)
{
    const struct app_command *c;
    begin(f, NULL, "language models with a compressed KV cache");
    fputs(".SH SYNOPSIS\n.B winnow\n\\fICOMMAND\\fR [options]\n.SH COMMANDS\n", f);
    for (int i = 0; (c = cli_command(i)); i++) {
        fputs(".TP\n.BR winnow\\-", f);
        put_name(f, c->name);
        fputs(" (1)\n", f);
        put_line(f, c->about);
    }
    fputs(".SH OPTIONS\n.TP\n.B \\-\\-help\nList the commands.\n.TP\n.B \\-\\-version\nPrint the version.\n"
          ".SH ENVIRONMENT\n.TP\n.B WINNOW_CACHE\nThe folder of models and profiles [\\(ti/.cache/winnow].\n",
          f);
}

/* Writes one page to a folder; command NULL: of winnow itself. */
static int write_page(const char *folder, const struct app_command *command)
{
    char *path;
    struct app_out out = {0};
    if (asprintf(&path, "%s/winnow%s%s.1", folder, command ? "-" : "", command ? command->name : "") < 0)
        return app_fail(APP_FAILED, "out of memory");
    for (char *p = path + strlen(folder); *p; p++)
        *p = *p == ' ' ? '-' : *p;
    int rc = app_out_open(&out, path, NULL);
    if (rc == APP_OK) {
        if (command)
            put_page(out.f, command);
        else
            put_overview(out.f);
        rc = app_out_commit(&out);
    }
    free(path);
    return rc;
}

static int write_pages(const char *folder)
{
    const struct app_command *c;
    WNW_TRY(app_make_folders(folder));
    WNW_TRY(write_page(folder, NULL));
    for (int i = 0; (c = cli_command(i)); i++)
        WNW_TRY(write_page(folder, c));
    return APP_OK;
}

/* Shows a page with the program `man`. false: there is none, and nothing was shown. */
static bool show_page(const struct app_command *command)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return false;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("man", "man", "-l", "-", (char *)NULL);
        _exit(NO_PROGRAM);
    }
    close(ends[0]);
    FILE *f = pid > 0 ? fdopen(ends[1], "w") : NULL;
    if (!f) {
        close(ends[1]);
        return false;
    }
    signal(SIGPIPE, SIG_IGN); /* the reader may be gone before the page is written */
    if (command)
        put_page(f, command);
    else
        put_overview(f);
    fclose(f);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Prints a page: for a reader on a terminal where the system has `man`, else as roff into a pipe or file, or as the help. */
static int print_page(const struct app_command *command)
{
    if (isatty(STDOUT_FILENO) && show_page(command))
        return APP_OK;
    if (isatty(STDOUT_FILENO) && command)
        app_print_help(stdout, command, true);
    else if (command)
        put_page(stdout, command);
    else
        put_overview(stdout);
    return app_finish_stdout();
}

int cli_man(const struct app_args *args)
{
    int n_words;
    if (args->out && args->n_rest > 0)
        return app_fail(APP_BAD_INPUT, "-o writes the pages of all commands; leave '%s' out", args->rest[0]);
    if (args->out)
        return write_pages(args->out);
    if (args->n_rest == 0)
        return print_page(NULL);
    const struct app_command *c = cli_find_command(args->rest[0], args->rest[1], &n_words);
    if (!c)
        return APP_BAD_INPUT;
    if (args->n_rest > n_words)
        return app_fail(APP_BAD_INPUT, "`winnow man` takes one command");
    return print_page(c);
}
