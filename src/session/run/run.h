/* SPDX-License-Identifier: MIT */
/* What programs do with a session. */
#ifndef WNW_RUN_H
#define WNW_RUN_H

#include "winnow.h"

/* ---- What is recorded: wnw_session_begin gets the policies that will plan (declare.c) ---- */

/* Parses the recipe of the run, or chooses a policy where it is an automatic one (facts.c). was_read: what was observed while the
 * session's tokens were read is not there. E_ARG: the run has a policy too, or no such recipe. */
int wnw__run_policy(wnw_policy **out, const wnw_session *s, const wnw_run *run, bool was_read);

/* From now on nothing is recorded that policies need; rules, profile and what was said of the prompt stay. */
void wnw__session_end_observing(wnw_session *s);
/* Starts or stops the recorder type of this name, which must be one that no policy asks for. Starting a type
 * that is already recording changes nothing. E_ARG: there is no such type, or policies ask for it. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

#endif
