/* SPDX-License-Identifier: MIT */
/* The libraries' own functions. This program defines functions of the same names, which call them (calls.c, connections.cpp). */
#ifndef WNW_SERVE_LIBLLAMA_REAL_H
#define WNW_SERVE_LIBLLAMA_REAL_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void serve_any_function(void);
/* The library's function of that name; ends the process where there is none. */
serve_any_function *serve_real_function(const char *name);

#ifdef __cplusplus
}
#endif

#define REAL(name) ((__typeof__(&name))serve_real_function(#name))

#endif
