/* SPDX-License-Identifier: MIT */
/* libllama's own functions, behind those that this program has in front of them (calls.c). */
#ifndef WNW_SERVE_REAL_H
#define WNW_SERVE_REAL_H

typedef void serve_any_function(void);
/* libllama's function of that name; ends the process where there is none. */
serve_any_function *serve_real_function(const char *name);

#define REAL(name) ((__typeof__(&name))serve_real_function(#name))

#endif
