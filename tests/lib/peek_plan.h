/* SPDX-License-Identifier: MIT */
/* The private headers of parts, policies, profiles and the driver. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_PLAN_H
#define WNW_TESTS_PEEK_PLAN_H

#include "contents/match_fit.h"
#include "plan/compress.h"
#include "plan/compress_impl.h"
#include "plan/plan.h"
#include "policy/compiler.h"
#include "policy/count.h"
#include "policy/mean_rope.h"
#include "policy/part.h"
#include "policy/policy.h"
#include "profile/profile.h"

#endif
