/* SPDX-License-Identifier: MIT */
/* Files that come with the program: texts, profiles, pages and the papers' numbers. */
#ifndef WNW_APP_SHARE_H
#define WNW_APP_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the folder of the program. False if it is not known. */
bool app_program_folder(char *path, size_t size);
/* Sets path to one of winnow's libraries or programs that users do not start themselves. Looks for NAME next to the program, as in a
 * build folder, then in lib/winnow, where it is installed. Links are followed. False if no such file is readable and, if `runs`,
 * executable. */
bool app_program_part(char *path, size_t size, const char *name, bool runs);
/* The places of a shipped file, in the order of looking, both owned by the caller. [0]: share/TAIL in the
 * folder of the program, as in a build folder, which has a link to that of the source tree. [1]:
 * ../share/winnow/TAIL, an installed program. Both are NULL if the program's own place is not known. Returns an exit code, like the functions
 * below. */
int app_share_places(char *places[2], const char *tail);

/* The texts that come with the program; share/text/README.md says what they are. */
#define APP_TEXT_CALIBRATION "text/calibration.txt" /* prose; calibrates, and never evaluates */
#define APP_TEXT_KINDS       "text/kinds"        /* a folder: texts that are no prose; they calibrate too */
#define APP_TEXT_HELD_OUT    "text/held-out.txt" /* prose; evaluates, and never calibrates */

/* Finds a shipped file. The caller frees *path. Bad input where it is missing; the message names the option
 * with which the user can give another, if there is one (NULL = none). */
int app_share_find(char **path, const char *tail, const char *option);

#endif
