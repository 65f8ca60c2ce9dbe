/* SPDX-License-Identifier: MIT */
/* --devices and --layers: the devices of ggml that winnow is put around, and how many layers each has. */
#ifndef WNW_APP_DEVICES_H
#define WNW_APP_DEVICES_H

#include "app/args.h"
#include "app/text.h"

#include <stdint.h>

enum { APP_MOST_DEVICES = 64 };

struct app_devices {
    struct app_text
        ours; /* names of the devices around them, with commas between; NULL: none were asked for */
    struct app_text split; /* what libllama shares layers out by; NULL: by free memory */
    int32_t n;
};

/* Sets WINNOW_GGML_MODULES to the libggml-vulkan.so in the folder of our backend, where there is one and nothing is set. Programs that
 * are started from here load it, too. */
void app_devices_name_modules(void);

/* The layers of a model's file that libllama computes: those that predict several tokens are left out. 0: the file cannot be read. */
int64_t app_devices_count_layers(const char *model);
/* Makes the devices that args names, for the model in this file. Without --devices it does nothing. */
int app_devices_make(struct app_devices *d, const struct app_args *args, const char *model);
void app_devices_clear(struct app_devices *d);

#endif
