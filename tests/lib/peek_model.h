/* SPDX-License-Identifier: MIT */
/* The private headers of models' files. See peek_arrays.h. */
#ifndef WNW_TESTS_PEEK_MODEL_H
#define WNW_TESTS_PEEK_MODEL_H

#include "model/admit.h"
#include "model/digests.h"
#include "model/model_impl.h"

#endif
