/* SPDX-License-Identifier: MIT */
/* The private headers of the backend under libllama. See peek_arrays.h. They need ggml's own private header, which only
 * builds with the backend have. */
#ifndef WNW_TESTS_PEEK_BRIDGE_H
#define WNW_TESTS_PEEK_BRIDGE_H

#include "bridge/device/device.h"
#include "bridge/graph/fuse.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"

#endif
