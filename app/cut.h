/* SPDX-License-Identifier: MIT */
/* Files that are cut off while they are mapped: models, which libllama maps, and stored documents. */
#ifndef WNW_APP_CUT_H
#define WNW_APP_CUT_H

/* From now on reading what such a file no longer has is one line on stderr and exit code 1, without an unfinished output file. */
void app_catch_cuts(void);

#endif
