/* SPDX-License-Identifier: MIT */
/* The private headers of what computes on plain arrays: base/, kernel/, cache/, attend/, rope; and teams
 * of threads. Tests see src/ through
 * the files peek_*.h alone, so that a header that moves or is split changes one line here. */
#ifndef WNW_TESTS_PEEK_ARRAYS_H
#define WNW_TESTS_PEEK_ARRAYS_H

#include "attend/attend.h"
#include "attend/attend_cells.h"
#include "attend/attend_impl.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/split_files.h"
#include "base/strings.h"
#include "base/system.h"
#include "base/topk.h"
#include "base/vectors.h"
#include "cache/cache.h"
#include "forward/matmul.h"
#include "forward/norm.h"
#include "forward/team.h"
#include "kernel/bf16.h"
#include "kernel/kernel_impl.h"
#include "kernel/matmul.h"
#include "kernel/score8.h"
#include "model/rope.h"

#endif
