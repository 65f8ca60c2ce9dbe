/* SPDX-License-Identifier: MIT */
/* The folder of parked prompts: its lock, and a file winnow-NUMBER.park for each prompt. */
#ifndef WNW_SERVE_PARK_FOLDER_H
#define WNW_SERVE_PARK_FOLDER_H

#include "serve/park_file.h"

/* Starts as {0}. */
struct serve_park_folder {
    char *path; /* owned; NULL: not open */
    char fingerprint[24];
    int lock; /* the file whose lock the process holds */
};

/* A file that is there. */
struct serve_park_found {
    uint64_t id;
    size_t bytes;
    int64_t used;                   /* seconds since 1970 */
    struct serve_park_about *about; /* to be taken over; empty if it is unfit */
    bool unfit;                     /* of another model or version, or not to be read now */
};
typedef int serve_park_take(const struct serve_park_found *found, void *user);

/* Takes the lock of a folder, makes the folder where it is missing, and calls take for each file, the one used least recently first. Damaged files
 * are removed; one that the system does not let be read stays. One line says what was found. WNW_E_ARG: another process has it; WNW_E_IO: nothing can be written there; WNW_E_NOMEM. */
int serve_park_folder_open(struct serve_park_folder *f, const char *path, const char *fingerprint,
                           serve_park_take *take, void *user);
void serve_park_folder_close(struct serve_park_folder *f);
/* Whether there is such a folder. */
bool serve_park_folder_is(const char *path);

int serve_park_folder_write(size_t *bytes, const struct serve_park_folder *f, uint64_t id,
                            const struct serve_park_about *about, const uint8_t *image, size_t n);
int serve_park_folder_image(uint8_t **image, size_t *n, const struct serve_park_folder *f, uint64_t id);
/* Notes that it was used now. */
void serve_park_folder_touch(const struct serve_park_folder *f, uint64_t id);
void serve_park_folder_remove(const struct serve_park_folder *f, uint64_t id);

#endif
