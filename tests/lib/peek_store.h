/* SPDX-License-Identifier: MIT */
/* The private header of stored sessions. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_STORE_H
#define WNW_TESTS_PEEK_STORE_H

#include "store/wkv.h"

#endif
