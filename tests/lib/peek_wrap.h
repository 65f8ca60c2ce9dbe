/* SPDX-License-Identifier: MIT */
/* The private headers of devices around other devices. See peek_arrays.h and peek_bridge.h. */
#ifndef WNW_TESTS_PEEK_WRAP_H
#define WNW_TESTS_PEEK_WRAP_H

#include "bridge/wrap/wrap.h"
#include "bridge/wrap/wrap_ahead.h"
#include "bridge/wrap/wrap_guard.h"

#endif
