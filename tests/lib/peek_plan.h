/* SPDX-License-Identifier: MIT */
/* The private headers of parts, policies, profiles and the driver. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_PLAN_H
#define WNW_TESTS_PEEK_PLAN_H

#include "contents/more/match_fit.h"
#include "method/compiler.h"
#include "method/count.h"
#include "method/mean_rope.h"
#include "plan/compress.h"
#include "plan/compress_impl.h"
#include "plan/plan.h"
#include "plan/turns.h"
#include "policy/part.h"
#include "policy/policy.h"
#include "profile/profile.h"

#endif
