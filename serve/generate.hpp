// SPDX-License-Identifier: MIT
// Requests that generate. Each claims a slot, goes on with its number, and gives it back when its reply is through.
#ifndef WNW_SERVE_GENERATE_HPP
#define WNW_SERVE_GENERATE_HPP

#include "serve/internal_requests.hpp"
#include "serve/request.h"

namespace serve
{

// On its way to the server's own route, whose bodies have that form.
server_http_res_ptr generate(const server_http_context::handler_t &route, serve_form form,
                             const server_http_req &req);
// On its way to a route of which no slots are claimed: refused where memory is bounded. form: of its fields, -1 = none.
server_http_res_ptr uncounted(const server_http_context::handler_t &route, int form,
                              const server_http_req &req);
// The same where the field `winnow` has no meaning, and a slot cannot be named.
server_http_res_ptr without_field(const server_http_context::handler_t &route, const server_http_req &req);

} // namespace serve

#endif
