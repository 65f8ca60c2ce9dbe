// SPDX-License-Identifier: MIT
#include "serve/replies.hpp"

#include "serve/bodies.h"
#include "serve/deferred.hpp"

namespace serve
{

kept_reply::kept_reply(std::unique_ptr<request> q, server_http_res_ptr r)
    : req(std::move(q)), inner(std::move(r))
{
    content_type = inner->content_type;
    status = inner->status;
    data = std::move(inner->data);
    headers = inner->headers;
    if (inner->is_stream())
        next = [this](std::string &out) { return inner->next(out); };
}

void kept_reply::on_complete()
{
    inner->on_complete();
}

kept_reply::~kept_reply()
{
    inner.reset(); // it looks into the request
    offer_deferred();
}

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
