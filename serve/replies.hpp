// SPDX-License-Identifier: MIT
// Replies of ours, in place of the server's.
#ifndef WNW_SERVE_REPLIES_HPP
#define WNW_SERVE_REPLIES_HPP

#include "serve/internal_requests.hpp"

namespace serve
{

// A reply of the server's, and the request that it looks into for as long as it lasts.
struct kept_reply : server_http_res {
    std::unique_ptr<request> req;
    server_http_res_ptr inner;
    kept_reply(std::unique_ptr<request> q, server_http_res_ptr r);
    void on_complete() override;
    ~kept_reply() override;
};

// JSON; without any, that there is no memory.
server_http_res_ptr reply(int status, c_text text);
// An error; param: the field that is wrong, or null.
server_http_res_ptr refuse(int status, const char *why, const char *param);

} // namespace serve

#endif
