/* SPDX-License-Identifier: MIT */
/* The private headers of calibrations, and those of sessions. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_CALIBRATE_H
#define WNW_TESTS_PEEK_CALIBRATE_H

#include "peek_session.h"

#include "base/journal.h"
#include "base/json.h"
#include "calibrate/bandit.h"
#include "calibrate/calibrate.h"
#include "calibrate/curve_solve.h"
#include "calibrate/gate_fit.h"
#include "calibrate/layer_error.h"
#include "calibrate/moments.h"
#include "calibrate/probe.h"
#include "calibrate/retrieval.h"
#include "calibrate/risk_grid.h"
#include "calibrate/sample.h"
#include "calibrate/share_count.h"
#include "calibrate/trial.h"
#include "score/score.h"

#endif
