// SPDX-License-Identifier: MIT
// What the server shows of itself: its page, and what is kept.
#ifndef WNW_SERVE_PAGES_HPP
#define WNW_SERVE_PAGES_HPP

#include "serve/internal_requests.hpp"

namespace serve
{

// GET /: the page, which asks this server.
server_http_res_ptr page(const server_http_req &req);
// GET /winnow/page: what a slot or a document holds now. A slot that answers is shown when it has.
server_http_res_ptr inspect(const server_http_req &req);
// GET /winnow/kv.
server_http_res_ptr show(const server_http_req &req);
// GET /metrics: the server's own lines, then ours.
server_http_res_ptr with_metrics(const server_http_context::handler_t &route, const server_http_req &req);

} // namespace serve

#endif
