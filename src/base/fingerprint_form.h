/* SPDX-License-Identifier: MIT */
/* Fingerprints of models as files name them. Files of winnow before fingerprints covered all weights have 16 digits; they are
 * refused with a sentence of their own, because nothing tells which of several models they belong to. */
#ifndef WNW_BASE_FINGERPRINT_FORM_H
#define WNW_BASE_FINGERPRINT_FORM_H

#include "winnow.h"
#include "winnow_tools.h"

#include <string.h>

enum wnw__fingerprint_form {
    WNW_FINGERPRINT_BAD, /* no fingerprint */
    WNW_FINGERPRINT_OLD, /* of a part of the model */
    WNW_FINGERPRINT_NOW  /* as wnw_model_fingerprint writes it */
};

/* text may be NULL. */
static inline enum wnw__fingerprint_form wnw__fingerprint_form(const char *text)
{
    const size_t n = text ? strlen(text) : 0;
    if (n == 0 || strspn(text, "0123456789abcdef") != n)
        return WNW_FINGERPRINT_BAD;
    if (n == WNW_FINGERPRINT_SIZE - 1)
        return WNW_FINGERPRINT_NOW;
    return n == 16 ? WNW_FINGERPRINT_OLD : WNW_FINGERPRINT_BAD;
}

#endif
