/* SPDX-License-Identifier: MIT */
/* Runs a fuzz target over files, without libFuzzer: replay PATH..., a folder stands for the files in it. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_inputs;

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    fuzz_require(f && fseek(f, 0, SEEK_END) == 0, "an input cannot be opened");
    const long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    fuzz_require(data && size >= 0 && fread(data, 1, (size_t)size, f) == (size_t)size,
                 "an input cannot be read");
    fclose(f);
    /* The last line says which input it was that ended the process. */
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    n_inputs++;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static void run_path(const char *path)
{
    struct dirent **entries;
    const int n = scandir(path, &entries, visible, alphasort);
    if (n < 0) {
        run_file(path);
        return;
    }
    for (int i = 0; i < n; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        run_file(inner);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%d inputs\n", n_inputs);
    return n_inputs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
