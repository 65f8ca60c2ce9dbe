/* SPDX-License-Identifier: MIT */
/* Made-up profiles; their numbers were measured on nothing. */
#ifndef WNW_TESTS_PROFILES_H
#define WNW_TESTS_PROFILES_H

#include "asserts.h"

/* Has results of every kind. Released with wnw_profile_free. */
wnw_profile *test_profile_of_all_kinds(const wnw_model *m);

#endif
