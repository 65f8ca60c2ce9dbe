/* SPDX-License-Identifier: MIT */
/* Tests look into src/text through here. */
#ifndef WNW_TESTS_PEEK_TEXT_H
#define WNW_TESTS_PEEK_TEXT_H

#include "base/strings.h"
#include "text/pretokenizer.h"
#include "text/text.h"
#include "text/tokens_marked.h"

#endif
