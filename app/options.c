/* SPDX-License-Identifier: MIT */
/* What is derived from option tables: popt's table, strict values, range errors, help. */
#include "app/args.h"

#include "app/console.h"
#include "app/text.h"
#include "app/values.h"
#include "app/wrap.h"
#include "base/err.h"
#include "base/strings.h"

#include <math.h>
#include <popt.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---- */

static void option_title(char *buf, size_t size, const struct app_option *o)
{
    if (o->name)
        snprintf(buf, size, "--%s", o->name);
    else
        snprintf(buf, size, "-%c", o->letter);
}

static void *target(struct app_args *args, const struct app_option *o)
{
    return (char *)args + o->offset;
}

static bool in_range(const struct app_option *o, double v)
{
    return v >= o->min && v <= o->max;
}

static void clear_list(struct app_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->s[i]);
    free(list->s);
    *list = (struct app_list){0};
}

/* Adds one value to a list that ends with NULL. */
static int store_more(struct app_list *list, const char *text)
{
    char **more = realloc(list->s, ((size_t)list->n + 2) * sizeof *more);
    char *copy = strdup(text);
    if (more)
        list->s = more;
    if (!more || !copy) {
        free(copy);
        return app_fail(APP_FAILED, "out of memory");
    }
    list->s[list->n++] = copy;
    list->s[list->n] = NULL;
    return APP_OK;
}

static int store_text(char **to, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy)
        return app_fail(APP_FAILED, "out of memory");
    free(*to);
    *to = copy;
    return APP_OK;
}

static int out_of_range(const struct app_option *o, const char *title, const char *text)
{
    return app_fail(APP_BAD_INPUT, "%s %s is out of range; it must be %s", title, text, o->range);
}

static int store_real(double *to, const struct app_option *o, const char *title, const char *text)
{
    double v = NAN;
    if (text && !app_parse_real(&v, text))
        return app_fail(APP_BAD_INPUT, "%s: '%s' is not a number", title, text);
    if (text && !in_range(o, v))
        return out_of_range(o, title, text);
    *to = v;
    return APP_OK;
}

/* Stores a whole number, or a number of bytes. */
static int store_whole(int64_t *to, const struct app_option *o, const char *title, const char *text)
{
    const bool bytes = o->type == APP_BYTES;
    int64_t v = APP_UNSET;
    if (text && !(bytes ? app_parse_bytes(&v, text) : app_parse_int(&v, text)))
        return app_fail(APP_BAD_INPUT, "%s: '%s' is not %s", title, text,
                        bytes ? "a number of bytes (suffix K, M or G)" : "a whole number");
    if (text && !in_range(o, (double)v))
        return out_of_range(o, title, text);
    *to = v;
    return APP_OK;
}

/* Stores one value. NULL text = the option is not given and has no default. */
static int store(struct app_args *args, const struct app_option *o, const char *text)
{
    char title[64];
    void *to = target(args, o);
    option_title(title, sizeof title, o);
    switch (o->type) {
    case APP_FLAG:
        *(bool *)to = text != NULL;
        return APP_OK;
    case APP_TEXTS:
        return text ? store_more(to, text) : APP_OK;
    case APP_TEXT:
        return store_text(to, text);
    case APP_REAL:
        return store_real(to, o, title, text);
    case APP_INT:
    case APP_BYTES:
        return store_whole(to, o, title, text);
    }
    return APP_OK;
}

/* ---- Parsing ---- */

enum { MAX_OPTIONS = 128 }; /* a command with more would lose its last ones */

/* The command's options in one list; returns how many. */
static int collect(const struct app_option **list, const struct app_command *cmd)
{
    int n = 0;
    for (int g = 0; cmd->groups[g]; g++) {
        for (int i = 0; i < cmd->groups[g]->n && n < MAX_OPTIONS; i++)
            list[n++] = &cmd->groups[g]->options[i];
    }
    return n;
}

/* Prints what is wrong with the argument that popt refused. */
static int popt_failed(poptContext con, int rc, const struct app_command *cmd,
                       const struct app_option *const *list, int n)
{
    const char *bad = poptBadOption(con, POPT_BADOPTION_NOALIAS);
    const char *names[MAX_OPTIONS + 1];
    char word[80];
    int n_names = 0;
    if (rc == POPT_ERROR_MALLOC || !bad)
        return app_fail(APP_FAILED, "out of memory");
    if (rc != POPT_ERROR_BADOPT)
        return app_fail(APP_BAD_INPUT, "%s: %s; see `winnow %s --help`", bad, poptStrerror(rc), cmd->name);
    for (int i = 0; i < n; i++) {
        if (list[i]->name)
            names[n_names++] = list[i]->name;
    }
    names[n_names] = NULL;
    snprintf(word, sizeof word, "%s", bad);
    word[strcspn(word, "=")] = '\0';
    const char *near = strncmp(word, "--", 2) == 0 ? wnw__nearest(word + 2, names) : NULL;
    if (near)
        return app_fail(APP_BAD_INPUT, "unknown option %s; did you mean --%s?", word, near);
    return app_fail(APP_BAD_INPUT, "unknown option %s; see `winnow %s --help`", word, cmd->name);
}

static int take_rest(struct app_args *args, const struct app_command *cmd, const char **rest)
{
    int n = 0;
    while (rest && rest[n])
        n++;
    if (n > cmd->max_rest)
        return app_fail(APP_BAD_INPUT, "unexpected argument '%s'; see `winnow %s --help`",
                        rest[cmd->max_rest], cmd->name);
    args->rest = calloc((size_t)n + 1, sizeof *args->rest);
    if (!args->rest)
        return app_fail(APP_FAILED, "out of memory");
    for (int i = 0; i < n; i++) {
        args->rest[i] = strdup(rest[i]);
        if (!args->rest[i])
            return app_fail(APP_FAILED, "out of memory");
        args->n_rest++;
    }
    return APP_OK;
}

static int take_option(struct app_args *args, const struct app_option *o, poptContext con)
{
    char *text = o->type == APP_FLAG ? NULL : poptGetOptArg(con);
    /* popt has refused an option without its argument before this; text is NULL only if memory ran
     * out. */
    if (o->type != APP_FLAG && !text)
        return app_fail(APP_FAILED, "out of memory");
    const int rc = store(args, o, text ? text : "");
    free(text);
    return rc;
}

static int take_all(struct app_args *args, const struct app_command *cmd, poptContext con,
                    const struct app_option *const *list, int n)
{
    int val;
    while ((val = poptGetNextOpt(con)) > 0)
        WNW_TRY(take_option(args, list[val - 1], con));
    if (val < -1)
        return popt_failed(con, val, cmd, list, n);
    return args->help || args->help_all ? APP_OK : take_rest(args, cmd, poptGetArgs(con));
}

int app_parse(struct app_args *args, const struct app_command *cmd, int argc, const char **argv)
{
    const struct app_option *list[MAX_OPTIONS];
    struct poptOption table[MAX_OPTIONS + 1];
    const int n = collect(list, cmd);
    memset(args, 0, cmd->args_size);
    memset(table, 0, sizeof table);
    for (int i = 0; i < n; i++) {
        table[i].longName = list[i]->name;
        table[i].shortName = list[i]->letter;
        table[i].argInfo = list[i]->type == APP_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING;
        table[i].val = i + 1;
        WNW_TRY(store(args, list[i], list[i]->def));
    }
    poptContext con = poptGetContext("winnow", argc, argv, table, 0);
    if (!con)
        return app_fail(APP_FAILED, "out of memory");
    const int rc = take_all(args, cmd, con, list, n);
    poptFreeContext(con);
    return rc;
}

bool app_option_is_default(const struct app_args *args, const struct app_option *o)
{
    const void *at = (const char *)args + o->offset;
    double real = NAN;
    int64_t whole = APP_UNSET;
    switch (o->type) {
    case APP_FLAG:
        return *(const bool *)at == (o->def != NULL);
    case APP_TEXTS:
        return ((const struct app_list *)at)->n == 0;
    case APP_TEXT: {
        const char *text = *(char *const *)at;
        return text && o->def ? strcmp(text, o->def) == 0 : !text && !o->def;
    }
    case APP_REAL:
        if (o->def)
            (void)app_parse_real(&real, o->def);
        return isnan(real) ? isnan(*(const double *)at) : real == *(const double *)at;
    case APP_INT:
    case APP_BYTES:
        if (o->def)
            (void)(o->type == APP_INT ? app_parse_int(&whole, o->def) : app_parse_bytes(&whole, o->def));
        return whole == *(const int64_t *)at;
    }
    return true;
}

void app_args_clear(struct app_args *args, const struct app_command *cmd)
{
    const struct app_option *list[MAX_OPTIONS];
    const int n = collect(list, cmd);
    for (int i = 0; i < n; i++) {
        if (list[i]->type == APP_TEXT)
            free(*(char **)target(args, list[i]));
        else if (list[i]->type == APP_TEXTS)
            clear_list(target(args, list[i]));
    }
    for (int i = 0; i < args->n_rest; i++)
        free(args->rest[i]);
    free(args->rest);
    memset(args, 0, cmd->args_size);
}

/* ---- Help ---- */

enum { HELP_COLUMN = 29 }; /* where descriptions begin */

/* Whether the option is in the short help: the command names it in `first`, or names none. */
static bool is_first(const struct app_command *cmd, const struct app_option *o)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", o->name ? o->name : (char[]){o->letter, '\0'});
    char list[256];
    snprintf(list, sizeof list, " %s ", cmd->first ? cmd->first : "");
    return !cmd->first || strstr(list, word) != NULL;
}

static void print_option(FILE *f, const struct app_option *o, int width)
{
    char left[64], text[1024];
    int len;
    if (o->letter)
        len =
            snprintf(left, sizeof left, "-%c%s%s", o->letter, o->name ? ", --" : "", o->name ? o->name : "");
    else
        len = snprintf(left, sizeof left, "    --%s", o->name);
    if (o->arg)
        len += snprintf(left + len, sizeof left - (size_t)len, " %s", o->arg);
    const char *def = o->shown ? o->shown : o->def;
    snprintf(text, sizeof text, "%s%s%s%s", o->help, def ? " [" : "", def ? def : "", def ? "]" : "");
    fprintf(f, "  %-*s ", HELP_COLUMN - 3, left);
    if (len > HELP_COLUMN - 3)
        fprintf(f, "\n%*s", HELP_COLUMN, "");
    app_wrap(f, text, HELP_COLUMN, HELP_COLUMN, width);
}

/* Prints the options of a group that the help has; returns how many it leaves out. */
static int print_group(FILE *f, const struct app_command *cmd, const struct app_group *group, bool all,
                       int width)
{
    int n_printed = 0;
    for (int i = 0; i < group->n; i++) {
        if (!all && !is_first(cmd, &group->options[i]))
            continue;
        if (n_printed++ == 0)
            fprintf(f, "\n%s:\n", group->title);
        print_option(f, &group->options[i], width);
    }
    return group->n - n_printed;
}

void app_print_help(FILE *f, const struct app_command *cmd, bool all)
{
    const int width = app_wrap_columns(f);
    int n_left = 0;
    const int at = fprintf(f, "usage: winnow %s ", cmd->name);
    app_wrap(f, cmd->usage, at, 4, width);
    app_wrap(f, cmd->about, 0, 0, width);
    for (int g = 0; cmd->groups[g]; g++)
        n_left += print_group(f, cmd, cmd->groups[g], all, width);
    if (*cmd->notes) {
        putc('\n', f);
        app_wrap(f, cmd->notes, 0, 0, width);
    }
    if (n_left > 0)
        fprintf(f, "\n`winnow %s --help-all` has %d more options.\n", cmd->name, n_left);
}
