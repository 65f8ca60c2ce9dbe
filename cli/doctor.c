/* SPDX-License-Identifier: MIT */
/* winnow doctor: what the machine gives, what does not fit and what to do. */
#include "cli/doctor.h"

#include "app/console.h"
#include "app/models.h"
#include "cli/commands.h"

#include <stdlib.h>

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
