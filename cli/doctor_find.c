/* SPDX-License-Identifier: MIT */
/* Findings and sections of the report of winnow doctor. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void cli_doctor_find(struct cli_doctor *d, bool wrong, const char *todo, const char *fmt, ...)
{
    char *what;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&what, fmt, ap) < 0)
        what = NULL;
    va_end(ap);
    app_json_append(&d->findings, what ? json_pack("{s:b, s:o, s:o}", "wrong", (int)wrong, "what",
                                                   app_json_text(what), "todo", app_json_text(todo))
                                       : NULL);
    free(what);
    d->wrong = d->wrong || wrong;
}

void cli_doctor_section(struct cli_doctor *d, const char *name, json_t *section)
{
    app_json_set(&d->report, name, section);
}
