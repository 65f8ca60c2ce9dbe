/* SPDX-License-Identifier: MIT */
/* winnow completion: scripts for shells from the tables of commands and options. */
#include "app/console.h"
#include "app/models.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/find.h"
#include "winnow_method.h"

#include <string.h>

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

/* The length of the first word of a name. */
static int first_word(const char *name)
{
    return (int)strcspn(name, " ");
}

/* Whether a command before number i begins with the same word. */
static bool is_repeated(int i)
{
    const char *name = cli_command(i)->name;
    const int n = first_word(name);
    for (int k = 0; k < i; k++)
        if (first_word(cli_command(k)->name) == n && strncmp(cli_command(k)->name, name, (size_t)n) == 0)
            return true;
    return false;
}

static void put_first_words(void)
{
    for (int i = 0; cli_command(i); i++)
        if (!is_repeated(i))
            printf("%.*s ", first_word(cli_command(i)->name), cli_command(i)->name);
    fputs("help", stdout);
}

/* Text within single quotes of a shell; `shell`: fish takes a backslash before a quote, others end the string for it. */
static void put_quoted(const char *text, bool fish)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(fish ? "\\'" : "'\\''", stdout);
        else if (*text == '\\' && fish)
            fputs("\\\\", stdout);
        else
            putchar(*text);
}

static void put_presets(void)
{
    wnw_method_info m = wnw_method_info_default();
    for (int32_t i = 0; wnw_method_get(i, &m); i++)
        if (strcmp(m.kind, "preset") == 0)
            printf("%s ", m.name);
}

static void put_models(void)
{
    for (int i = 0; app_model_names[i]; i++)
        printf("%s ", app_model_names[i]);
}

/* Calls a function for each option of a command. */
static void each_option(const struct app_command *c,
                        void (*call)(const struct app_command *, const struct app_option *))
{
    for (int g = 0; c->groups[g]; g++)
        for (int i = 0; i < c->groups[g]->n; i++)
            call(c, &c->groups[g]->options[i]);
}

/* ---- bash, whose function zsh takes too ---- */

static void bash_option(const struct app_command *c, const struct app_option *o)
{
    (void)c;
    if (o->name)
        printf("--%s ", o->name);
    if (o->letter)
        printf("-%c ", o->letter);
}

/* Second words of commands of two. */
static void bash_seconds(void)
{
    fputs("    case $first in\n", stdout);
    for (int i = 0; cli_command(i); i++) {
        const char *name = cli_command(i)->name;
        const int n = first_word(name);
        bool any = false;
        for (int k = 0; cli_command(k) && !is_repeated(i); k++) {
            const char *other = cli_command(k)->name;
            if (strncmp(name, other, (size_t)n) != 0 || other[n] != ' ')
                continue;
            if (!any)
                printf("    %.*s) second_words='", n, name);
            printf("%s%s", any ? " " : "", other + n + 1);
            any = true;
        }
        if (any)
            puts("' ;;");
    }
    puts("    esac");
}

/* The names of its variables are not those of special ones of zsh, such as words and options. */
static void put_bash(void)
{
    puts("# Completion of winnow's commands and options, printed by `winnow completion`.\n"
         "_winnow_files() {\n"
         "    local IFS=$'\\n'\n"
         "    COMPREPLY+=($(compgen -f -- \"$1\"))\n"
         "}\n"
         "_winnow() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} second_words= "
         "choices= "
         "whole first_words\n"
         "    local first=${COMP_WORDS[1]-} second=${COMP_WORDS[2]-} at=1\n"
         "    COMPREPLY=()");
    puts("    case $first in\n    help|man) first=${COMP_WORDS[2]-} second=${COMP_WORDS[3]-} at=2 ;;\n    "
         "esac");
    fputs("    first_words='", stdout);
    put_first_words();
    puts("'\n    if [[ $COMP_CWORD -eq 1 ]]; then\n        first_words+=' --help --version'\n    fi\n"
         "    if [[ $COMP_CWORD -eq $at && $current != -* || $COMP_CWORD -eq 1 ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$first_words\" -- \"$current\"))\n        return\n    fi");
    bash_seconds();
    puts("    whole=$first\n"
         "    if [[ $COMP_CWORD -gt $((at + 1)) && \" $second_words \" == *\" $second \"* ]]; then\n"
         "        whole=\"$first $second\"\n    fi\n"
         "    if [[ $at -eq 2 ]]; then\n        whole=${COMP_WORDS[1]-}\n    fi\n"
         "    case $before in");
    fputs("    -m|--model) COMPREPLY=($(compgen -W '", stdout);
    put_models();
    fputs("' -- \"$current\") ); _winnow_files \"$current\"; return ;;\n    --policy) COMPREPLY=($(compgen "
          "-W '",
          stdout);
    put_presets();
    puts("' -- \"$current\")); return ;;\n    esac\n    case $whole in");
    for (int i = 0; cli_command(i); i++) {
        printf("    '%s') choices='", cli_command(i)->name);
        each_option(cli_command(i), bash_option);
        puts("' ;;");
    }
    puts("    esac\n"
         "    if [[ $whole == completion ]]; then\n        second_words='bash zsh fish'\n    fi\n"
         "    if [[ $current == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$choices\" -- \"$current\"))\n"
         "    elif [[ $COMP_CWORD -eq $((at + 1)) && -n $second_words ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$second_words\" -- \"$current\"))\n"
         "    else\n"
         "        _winnow_files \"$current\"\n"
         "    fi\n}");
}

/* ---- fish ---- */

/* The condition under which a command's options are offered, between double quotes. */
static void fish_condition(const char *name)
{
    const int n = first_word(name);
    printf("__fish_seen_subcommand_from %.*s", n, name);
    if (name[n])
        printf("; and __fish_seen_subcommand_from %s", name + n + 1);
}

static void fish_option(const struct app_command *c, const struct app_option *o)
{
    fputs("complete -c winnow -n \"", stdout);
    fish_condition(c->name);
    putchar('"');
    if (o->name)
        printf(" -l %s", o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->arg)
        fputs(" -r", stdout);
    if (o->name && strcmp(o->name, "policy") == 0) {
        fputs(" -f -a '", stdout);
        put_presets();
        putchar('\'');
    } else if (o->name && strcmp(o->name, "model") == 0) {
        fputs(" -a '", stdout);
        put_models();
        putchar('\'');
    }
    fputs(" -d '", stdout);
    put_quoted(o->help, true);
    puts("'");
}

static void put_fish(void)
{
    puts("# Completion of winnow's commands and options, printed by `winnow completion`.");
    for (int i = 0; cli_command(i); i++) {
        const char *name = cli_command(i)->name;
        const int n = first_word(name);
        if (!is_repeated(i)) {
            printf("complete -c winnow -f -n __fish_use_subcommand -a %.*s -d '", n, name);
            put_quoted(name[n] ? "" : cli_command(i)->about, true);
            puts("'");
        }
        if (name[n]) {
            printf("complete -c winnow -n '__fish_seen_subcommand_from %.*s' -a %s -d '", n, name,
                   name + n + 1);
            put_quoted(cli_command(i)->about, true);
            puts("'");
        }
        each_option(cli_command(i), fish_option);
    }
    puts("complete -c winnow -f -n __fish_use_subcommand -a help -d 'The options of a command'\n"
         "complete -c winnow -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'");
}

int cli_completion(const struct app_args *args)
{
    if (args->n_rest == 0)
        return app_fail(APP_BAD_INPUT, "`winnow completion` needs one of: bash, zsh, fish");
    const char *shell = args->rest[0];
    if (strcmp(shell, "fish") == 0) {
        put_fish();
    } else if (strcmp(shell, "bash") == 0) {
        put_bash();
        puts("complete -o filenames -F _winnow winnow");
    } else if (strcmp(shell, "zsh") == 0) {
        puts("#compdef winnow\nautoload -U +X bashcompinit && bashcompinit");
        put_bash();
        /* zsh has loaded the file as a function, and wants what that one completes. */
        puts("complete -o filenames -F _winnow winnow\n"
             "if [[ $funcstack[1] == _winnow ]]; then\n    _bash_complete -o filenames -F _winnow\nfi");
    } else {
        const char *near = wnw__nearest(shell, shells);
        return app_fail(APP_BAD_INPUT, "no completion for the shell '%s'%s%s%s", shell,
                        near ? "; did you mean " : "; those are bash, zsh and fish", near ? near : "",
                        near ? "?" : "");
    }
    return app_finish_stdout();
}
