/* SPDX-License-Identifier: MIT */
/*
 * Bounds on what a template does (decision 046). Templates are programs from a model's file, and llama.cpp's engine
 * bounds neither depth nor steps nor memory. So each node of the parsed template is wrapped in a node of winnow's. It
 * counts before it lets the engine go on. It checks the operands of operations whose result can be much larger than
 * they are. It restores the marks of input that some of the engine's functions lose.
 */
#ifndef WNW_JINJA_BOUNDS_H
#define WNW_JINJA_BOUNDS_H

#include "text/jinja_meter.h"

namespace wnw
{

/* Puts every node of the program into one that counts. The meter must live as long as the program. */
void bound(jinja::program &program, meter &m);

} // namespace wnw

#endif
