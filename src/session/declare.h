/* SPDX-License-Identifier: MIT */
/* wnw_session_begin is in declare.c: a session is told which policies will plan, so that it records what they need. */
#ifndef WNW_DECLARE_H
#define WNW_DECLARE_H

#include "winnow.h"

/* From now on nothing is recorded that policies need; rules, profile and what was said of the prompt stay. */
void wnw__session_end_observing(wnw_session *s);
/* Starts or stops the recorder type of this name, which must be one that no policy asks for. Starting a type
 * that is already recording changes nothing. E_ARG: there is no such type, or policies ask for it. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

#endif
