// SPDX-License-Identifier: MIT
// Replies of ours, in place of the server's.
#ifndef WNW_SERVE_REPLIES_HPP
#define WNW_SERVE_REPLIES_HPP

#include "serve/ask.hpp"

namespace serve
{

// JSON; without any, that there is no memory.
server_http_res_ptr reply(int status, c_text text);
// An error; param: the field that is wrong, or null.
server_http_res_ptr refuse(int status, const char *why, const char *param);

} // namespace serve

#endif
