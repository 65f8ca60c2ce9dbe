/* SPDX-License-Identifier: MIT */
/* What wnw_model_fingerprint keeps with a model, and the same for files that are not opened as a model. */
#ifndef WNW_FINGERPRINT_H
#define WNW_FINGERPRINT_H

#include "model/model.h"
#include "winnow_tools.h"

#include <stdatomic.h>

struct wnw__fingerprint {
    uint64_t headers[2]; /* of all tensors, as their files have them */
    char *digests;       /* folder that digests of files are kept in, or NULL; owned */
    atomic_int state;    /* of `text`: 0 = empty, 1 = one thread writes it, 2 = complete */
    char text[WNW_FINGERPRINT_SIZE];
};

/* Sets m->print after wnw__files_open, before any tensor is cut to the vocabulary's size. digests: see
 * wnw_model_params. E_NOMEM. */
int wnw__fingerprint_new(struct wnw_model *m, const char *digests);
void wnw__fingerprint_free(struct wnw_model *m);

#endif
