/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common: model, haystack and files. */
#ifndef WNW_EVAL_SETUP_H
#define WNW_EVAL_SETUP_H

#include "eval/run/items.h"
#include "eval/tasks/records.h"

struct eval_setup {
    const struct eval_args *args;
    const struct eval_suite *suite; /* NULL = the options name the tasks */
    char *model_path;
    wnw_model *model;
    struct eval_tokenizer tokenizer;
    struct eval_chat chat;
    struct eval_records squad, hotpot, folder;
    struct eval_source source;
    struct eval_items items;
    /* Of --text: */
    int32_t *text_ids, n_text; /* owned */
    char text_hash[17];
};

/* Checks the arguments, then opens model, haystack and files. Returns an exit code; the caller closes in any
 * case. */
int eval_setup_open(struct eval_setup *s, const struct eval_args *args, const struct eval_suite *suite);
void eval_setup_close(struct eval_setup *s);
/* Opens the model alone, with its tokenizer and a chat template. */
int eval_setup_open_model(struct eval_setup *s, const struct eval_args *args, const char *chat);
/* Finds how many units make the length of each item. Where samples are read, and not only printed, items that the model's
 * context does not hold are left out. Returns an exit code. */
int eval_setup_fit(struct eval_setup *s);
/* Makes sample `index` of an item; *more is false where a file has no such sample. A file is read forwards;
 * a smaller index begins it again. Returns an exit code; the caller clears the sample in any case. */
int eval_setup_sample(struct eval_sample *sample, bool *more, struct eval_setup *s, struct eval_item *item,
                      int32_t index);
/* Piece `index` of the text, which is borrowed. */
void eval_setup_piece(const int32_t **ids, int32_t *n, const struct eval_setup *s,
                      const struct eval_item *item, int32_t index);

#endif
