// SPDX-License-Identifier: MIT
// Where the tokens of documents stand in prompts.
#ifndef WNW_SERVE_LOAD_DOCUMENTS_HPP
#define WNW_SERVE_LOAD_DOCUMENTS_HPP

#include "serve/call.hpp"

namespace serve
{

// Finds the tokens of a list of documents and where each of these is in them, unless that was done. What is wrong, or null.
const char *plan_join(const server_http_req &req, int32_t d);

} // namespace serve

#endif
