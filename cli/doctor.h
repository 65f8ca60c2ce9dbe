/* SPDX-License-Identifier: MIT */
/* What `winnow doctor` finds: one JSON object, from which the text is printed, too. */
#ifndef WNW_CLI_DOCTOR_H
#define WNW_CLI_DOCTOR_H

#include "app/json.h"
#include "app/limits.h"
#include "cli/args.h"

struct cli_doctor {
    json_t *report, *findings; /* NULL after memory ran out */
    struct app_limits limits;
    bool wrong; /* something would keep winnow from working */
};

/* Adds a finding: what does not fit, with what to do. wrong: it would keep winnow from working; otherwise a remark. */
void cli_doctor_find(struct cli_doctor *d, bool wrong, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds a section to the report. */
void cli_doctor_section(struct cli_doctor *d, const char *name, json_t *section);

/* Each adds its sections and findings. */
void cli_doctor_machine(struct cli_doctor *d);
/* given: the path of -m, NULL if it was not given. */
void cli_doctor_files(struct cli_doctor *d, const char *given);

/* Prints the report as text. */
void cli_doctor_print(const json_t *report);

#endif
