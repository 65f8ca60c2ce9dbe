// SPDX-License-Identifier: MIT
#include "serve/replies.hpp"

#include "serve/bodies.h"

namespace serve
{

server_http_res_ptr reply(int status, c_text text)
{
    auto res = std::make_unique<server_http_res>();
    res->status = text ? status : 500;
    res->data =
        text ? text.get()
             : "{\"error\": {\"code\": 500, \"message\": \"out of memory\", \"type\": \"server_error\"}}";
    return res;
}

server_http_res_ptr refuse(int status, const char *why, const char *param)
{
    auto res = reply(status, c_text(serve_error(status, why, param)));
    if (status == 503)
        res->headers["Retry-After"] = "2";
    return res;
}

} // namespace serve
