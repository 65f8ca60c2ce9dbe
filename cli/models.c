/* SPDX-License-Identifier: MIT */
/* winnow models: the names that -m knows. */
#include "app/models.h"
#include "app/args.h"
#include "app/console.h"
#include "base/err.h"
#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>

int cli_models(const struct app_args *args)
{
    char *folder;
    (void)args;
    /* The folder is looked up before the first line is printed, so that an error is one line and nothing
     * else. */
    WNW_TRY(app_cache_path(&folder, ""));
    free(folder);
    printf("%-20s %-8s %9s  %s\n", "NAME", "PRESENT", "SIZE", "FILE");
    for (int i = 0; app_model_names[i]; i++) {
        char size[32] = "-";
        char *path;
        int64_t bytes;
        WNW_TRY(app_model_place(&path, &bytes, i));
        const bool present = bytes >= 0;
        if (present)
            snprintf(size, sizeof size, "%.1f MiB", (double)bytes / 1048576.0);
        printf("%-20s %-8s %9s  ", app_model_names[i], present ? "yes" : "no", size);
        app_print_line(path);
        puts(i == 0 ? "  (default)" : "");
        free(path);
    }
    return app_finish_stdout();
}
