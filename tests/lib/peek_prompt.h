/* SPDX-License-Identifier: MIT */
/* Lets tests look into prompts, and make some that the library does not. */
#include "text/prompt.h"
