// SPDX-License-Identifier: MIT
#include "serve/adapters.hpp"

#include "serve/bodies.h"
#include "serve/call.hpp"
#include "serve/documents.h"
#include "serve/parse.h"
#include "serve/replies.hpp"
#include "serve/values.h"

#include <atomic>
#include <cstring>
#include <jansson.h>

namespace serve
{
namespace
{

struct json_freed {
    void operator()(json_t *o) const
    {
        json_decref(o);
    }
};
using c_json = std::unique_ptr<json_t, json_freed>;

// What the server says of its adapters; empty where it does not, as while it is ending.
std::string said_of_adapters(const server_http_req &req)
{
    return ask(own().adapters, req, c_text(strdup("")));
}

// Whether the server was started without adapters. Their number never changes.
std::atomic<bool> has_none{false};

} // namespace

server_http_res_ptr take_adapters(const server_http_req &req, serve_request &r)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    const std::string said = has_none ? "[]" : said_of_adapters(req);
    has_none = serve_reply_length(said.data(), said.size()) == 0;
    const int status = serve_request_set_adapters(&r, said.data(), said.size(), why, &param);
    return status ? refuse(status, why, param) : nullptr;
}

server_http_res_ptr set_adapters(const server_http_context::handler_t &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    json_t *read = nullptr;
    int status = serve_parse(&read, req.body.data(), req.body.size(), why);
    const c_json body(read);
    if (status)
        return refuse(status, why, nullptr);
    if (json_object_get(read, "winnow"))
        return refuse(400, "winnow: this route would not follow it", "winnow");
    if (!json_is_array(read))
        return refuse(400, "the body is a list of adapters: [{\"id\": 0, \"scale\": 1.0}]", nullptr);
    if (serve_documents_n() > 0)
        return refuse(400, "scale: the server's documents were read with the scales of its start", "scale");
    const std::string said = said_of_adapters(req);
    const int32_t n = serve_reply_length(said.data(), said.size());
    if (n < 0)
        return refuse(503, "the server does not say which adapters it has; ask again later", nullptr);
    status = serve_values_check_adapters(read, nullptr, n, why, &param);
    if (status)
        return refuse(status, why, param);
    const c_text text(json_dumps(read, JSON_COMPACT));
    if (!text)
        return refuse(500, "out of memory", nullptr);
    drop_body(req);
    return pass_on(route, req, text.get());
}

server_http_res_ptr set_nothing(const server_http_context::handler_t &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    json_t *read = nullptr;
    const int status = req.body.empty() ? 0 : serve_parse(&read, req.body.data(), req.body.size(), why);
    const c_json body(read);
    if (status)
        return refuse(status, why, nullptr);
    if (json_array_size(read) > 0 || (read && !json_is_object(read) && !json_is_array(read)))
        return refuse(400, "the body is no object in JSON", nullptr);
    const char *name = json_object_iter_key(json_object_iter(read));
    if (!name)
        return pass_on(route, req, "");
    const std::string said =
        std::string(name).substr(0, 80) + ": this server has no property that a request changes";
    return refuse(400, said.c_str(), name);
}

} // namespace serve
