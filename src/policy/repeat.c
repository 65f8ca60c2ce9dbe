/* SPDX-License-Identifier: MIT */
#include "policy/repeat.h"

const char *wnw__repeat_words(bool inside)
{
    return inside ? "\n\nRepeat the part of the previous context exactly, starting with"
                  : "\n\nRepeat the previous context exactly.";
}
