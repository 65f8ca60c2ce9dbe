// SPDX-License-Identifier: MIT
// Requests that set what holds for the whole server: llama.cpp's routes take what they do not follow, and say that all is well.
#ifndef WNW_SERVE_ADAPTERS_HPP
#define WNW_SERVE_ADAPTERS_HPP

#include "serve/internal_requests.hpp"
#include "serve/request.h"

namespace serve
{

// Writes the scales of all adapters into a request. What is wrong with those that it names, or null.
server_http_res_ptr take_adapters(const server_http_req &req, serve_request &r);
// On its way to the route that sets the scales of adapters: its body is a list of adapters that the server has.
server_http_res_ptr set_adapters(const server_http_context::handler_t &route, const server_http_req &req);
// On its way to a route that changes nothing: a body that would have it change something is refused.
server_http_res_ptr set_nothing(const server_http_context::handler_t &route, const server_http_req &req);

} // namespace serve

#endif
