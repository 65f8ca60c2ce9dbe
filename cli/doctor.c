/* SPDX-License-Identifier: MIT */
/* winnow doctor: what the machine gives, what does not fit and what to do. */
#include "cli/doctor.h"

#include "app/console.h"
#include "app/models.h"
#include "cli/commands.h"

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

int cli_doctor(const struct app_args *args)
{
    struct cli_doctor d = {.report = json_object(), .findings = json_array()};
    char *given = NULL;
    int rc = args->model ? app_model_path(&given, args->model) : APP_OK;
    if (rc == APP_OK) {
        app_limits_read(&d.limits, "");
        cli_doctor_machine(&d);
        cli_doctor_files(&d, given);
        cli_doctor_section(&d, "findings", d.findings);
        d.findings = NULL;
        cli_doctor_section(&d, "ok", json_boolean(!d.wrong));
        if (args->json || !d.report) {
            rc = app_print_json(d.report);
            d.report = NULL;
        } else {
            cli_doctor_print(d.report);
            rc = app_finish_stdout();
        }
    }
    json_decref(d.report);
    json_decref(d.findings);
    free(given);
    return rc == APP_OK && d.wrong ? APP_FAILED : rc;
}
