/* SPDX-License-Identifier: MIT */
/* The commands of a conversation, and which of them a line names. */
#include "cli/chat.h"

#include "app/console.h"
#include "base/strings.h"

#include <string.h>

/* A line of the help has 40 columns. */
const struct cli_chat_command cli_chat_commands[] = {
    [CHAT_FILE] = {"file", "PATH", "add a text to your turn"},
    [CHAT_SYSTEM] = {"system", "TEXT", "restart; system message"},
    [CHAT_POLICY] = {"policy", "RECIPE", "method from now on"},
    [CHAT_SIZE] = {"size", "S", "how much: 0.5, 512, 64M"},
    [CHAT_STATS] = {"stats", NULL, "memory, context, speed"},
    [CHAT_UNDO] = {"undo", NULL, "remove the last turn"},
    [CHAT_RETRY] = {"retry", NULL, "answer it again"},
    [CHAT_REREAD] = {"reread", NULL, "apply policy to all turns"},
    [CHAT_SAVE] = {"save", "FILE", ".wkv: session; else text"},
    [CHAT_NEW] = {"new", NULL, "forget all turns"},
    [CHAT_HELP] = {"help", NULL, "this list"},
    [CHAT_QUIT] = {"quit", NULL, "end; so does Ctrl-D"},
};

static int unknown(const char *name)
{
    const char *names[CHAT_N_WORDS + 1] = {0};
    for (int i = 0; i < CHAT_N_WORDS; i++)
        names[i] = cli_chat_commands[i].name;
    const char *near = wnw__nearest(name, names);
    if (near)
        return app_fail(APP_BAD_INPUT, "there is no /%.40s; did you mean /%s?", name, near);
    return app_fail(APP_BAD_INPUT,
                    "there is no /%.40s; /help lists the commands, and // begins a text with /", name);
}

int cli_chat_parse(enum cli_chat_word *word, const char **argument, char *line)
{
    static const char blank[] = " \t";
    char *name = line + 1, *rest = name + strcspn(name, blank);
    if (*rest)
        *rest++ = '\0';
    rest += strspn(rest, blank);
    size_t n = strlen(rest);
    while (n > 0 && strchr(blank, rest[n - 1]))
        rest[--n] = '\0';
    *argument = rest;
    for (int i = 0; i < CHAT_N_WORDS; i++) {
        const struct cli_chat_command *c = &cli_chat_commands[i];
        if (strcmp(c->name, name) != 0)
            continue;
        *word = (enum cli_chat_word)i;
        if (c->argument && !*rest)
            return app_fail(APP_BAD_INPUT, "/%s needs its %s: %s", c->name, c->argument, c->help);
        if (!c->argument && *rest)
            return app_fail(APP_BAD_INPUT, "/%s takes nothing after it", c->name);
        return APP_OK;
    }
    return unknown(name);
}
