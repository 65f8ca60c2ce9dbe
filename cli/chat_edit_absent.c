/* SPDX-License-Identifier: MIT */
/* Replaces chat_edit.c in builds without libedit: lines are read without editing. */
#include "cli/chat_line.h"

#include "app/console.h"

const char *cli_edit_name(void)
{
    return NULL;
}

int cli_edit_open(struct cli_edit **out)
{
    *out = NULL;
    return APP_OK;
}

void cli_edit_close(struct cli_edit *e)
{
    (void)e;
}

enum cli_line_got cli_edit_read(struct cli_edit *e, const char *prompt, const char **line, size_t *n)
{
    (void)e;
    (void)prompt;
    *line = "";
    *n = 0;
    return CLI_LINE_END;
}

void cli_edit_remember(struct cli_edit *e, const char *line)
{
    (void)e;
    (void)line;
}
