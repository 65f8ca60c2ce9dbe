/* SPDX-License-Identifier: MIT */
/* What most tests of sessions use. */
#ifndef WNW_TESTS_HELPERS_H
#define WNW_TESTS_HELPERS_H

#include "asserts.h"
#include "logits.h"
#include "models.h"
#include "plans.h"
#include "random.h"
#include "rounding.h"
#include "sessions.h"

#endif
