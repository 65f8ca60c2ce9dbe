/* SPDX-License-Identifier: MIT */
/* --devices and --layers: the devices of ggml that winnow is put around, and how many layers each has. */
#ifndef WNW_CLI_DEVICES_H
#define WNW_CLI_DEVICES_H

#include "app/text.h"
#include "cli/args.h"

#include <stdint.h>

enum { CLI_MOST_DEVICES = 64 };

struct cli_devices {
    struct app_text
        ours; /* names of the devices around them, with commas between; NULL: none were asked for */
    struct app_text split; /* what libllama shares layers out by; NULL: by free memory */
    int32_t n;
};

/* Makes the devices that args names, for the model in this file. Without --devices it does nothing. */
int cli_devices_make(struct cli_devices *d, const struct cli_args *args, const char *model);
void cli_devices_clear(struct cli_devices *d);

#endif
