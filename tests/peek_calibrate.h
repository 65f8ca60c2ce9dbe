/* SPDX-License-Identifier: MIT */
/* The private headers of calibrations. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_CALIBRATE_H
#define WNW_TESTS_PEEK_CALIBRATE_H

#include "calibrate/calibrate.h"
#include "calibrate/journal.h"
#include "calibrate/json.h"

#endif
