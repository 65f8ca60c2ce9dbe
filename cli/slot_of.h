/* SPDX-License-Identifier: MIT */
/* A stored session as a slot of `winnow serve`, and as a prompt that is parked for it. */
#ifndef WNW_CLI_SLOT_OF_H
#define WNW_CLI_SLOT_OF_H

#include "serve/park_folder.h"
#include "serve/slot_file.h"
#include "winnow_store.h"

struct cli_slot {
    uint8_t *state; /* as libllama has it, owned */
    struct serve_slot_file file;
};

/* Functions return exit codes and print their messages; path is the file's name for them. Starts as {0}. */

/* Makes the slot of a stored session; bad input where no server can hold it. */
int cli_slot_make(struct cli_slot *slot, const wnw_stored *st, const char *path);
void cli_slot_clear(struct cli_slot *slot);

/* Parks a stored session as number `id` of a folder, for the prompts of an owner. like: a parked prompt whose rules it has followed; NULL =
 * those of the file. */
struct cli_slot_place {
    const struct serve_park_folder *folder;
    uint64_t id;
    struct serve_owner owner;
    const struct serve_park_about *like;
};
int cli_slot_park(const struct cli_slot_place *to, const wnw_stored *st, const wnw_model *model,
                  const char *path);

/* The text that these are the tokens of, with control tokens; at[n + 1] gets where each begins, unless it is NULL. NULL: no memory. The caller frees it. */
char *cli_slot_text(const wnw_model *model, const int32_t *tokens, int32_t n, size_t *at);
/* How many of the first tokens the vocabulary puts before each text, which a server does not count as text: 0 or 1. */
int32_t cli_slot_n_begin(const wnw_model *model, const int32_t *tokens, int32_t n);

#endif
