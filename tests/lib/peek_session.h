/* SPDX-License-Identifier: MIT */
/* The private headers of models, recorders and sessions, and those below them. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_SESSION_H
#define WNW_TESTS_PEEK_SESSION_H

#include "peek_arrays.h"
#include "peek_plan.h"

#include "attend/attend.h"
#include "llama/open.h"
#include "model/model.h"
#include "observe/columns.h"
#include "observe/input_gate_score.h"
#include "observe/newest.h"
#include "observe/nll.h"
#include "observe/projnorm.h"
#include "observe/qstats.h"
#include "observe/recorders.h"
#include "observe/token_rows.h"
#include "observe/window.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/planning/second_pass.h"
#include "session/rules/rules.h"
#include "session/run/layer_major.h"
#include "session/run/run.h"
#include "session/session.h"
#include "session/timeline/feed.h"
#include "study/perturb.h"

#endif
