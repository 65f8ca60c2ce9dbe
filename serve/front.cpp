// SPDX-License-Identifier: MIT
// Every request is checked here before a route sees it, also on llama.cpp's own routes and on paths without a route: who asks (origins.c),
// and whether there is room to answer (connections.cpp). The linker sends the server's call that sets its own check here (--wrap, server.cmake).
//
// cpp-httplib's header is not installed with libllama-common. So its classes are declared here with their first members alone, and with
// functions that the library exports.
#include "serve/front.hpp"
#include "serve/bodies.h"
#include "serve/config.h"
#include "serve/connections.hpp"
#include "serve/origins.h"
#include "serve/replies.hpp"
#include "winnow.h"
#include "winnow_bridge.h"

#include <cstring>
#include <functional>

namespace httplib
{

class Server
{
  public:
    enum class HandlerResponse { Handled, Unhandled };
};

struct Request {
    std::string method, path;
    std::string get_header_value(const std::string &key, const char *otherwise, size_t i) const;
    size_t get_header_value_count(const std::string &key) const;
};

struct Response {
    std::string version;
    int status;
    void set_content(const std::string &text, const std::string &type);
    void set_header(const std::string &key, const std::string &value);
};

} // namespace httplib

namespace
{

using httplib::Request;
using httplib::Response;
using answer = httplib::Server::HandlerResponse;
using question = std::function<answer(const Request &, Response &)>;

serve_doors doors{"", "", "/", false};
std::string own_page;

std::string header(const Request &req, const char *name)
{
    return req.get_header_value(name, "", 0);
}

answer refuse(Response &res, int status, const char *why)
{
    const auto reply = serve::refuse(status, why, nullptr);
    res.status = status;
    for (const auto &[key, value] : reply->headers)
        res.set_header(key, value);
    res.set_content(reply->data, reply->content_type);
    return answer::Handled;
}

// Whether a text has the character NUL. Nothing after it would be compared.
bool has_nul(const std::string &text)
{
    return std::strlen(text.c_str()) != text.size();
}

bool is_refused(const Request &req, char *why)
{
    const std::string host = header(req, "Host"), origin = header(req, "Origin"),
                      site = header(req, "Sec-Fetch-Site"), mode = header(req, "Sec-Fetch-Mode");
    const serve_asker asker{req.method.c_str(),
                            req.path.c_str(),
                            host.c_str(),
                            origin.c_str(),
                            has_nul(host) ? 0 : req.get_header_value_count("Host"),
                            req.get_header_value_count("Origin"),
                            site.c_str(),
                            mode.c_str()};
    std::snprintf(why, SERVE_REASON, "Origin: it has a character NUL");
    return has_nul(origin) || serve_refuses(&doors, &asker, why);
}

// Whether there is room for an answer. A request with a body is asked again once that has come (routes.cpp).
bool has_room(const Request &req)
{
    const bool always = req.path == "/health" || req.path == "/v1/health";
    const std::string length = header(req, "Content-Length");
    const bool comes =
        req.get_header_value_count("Transfer-Encoding") > 0 || (!length.empty() && length != "0");
    return comes || serve::begins_answer(always);
}

// Whether a lost worker is its error: pages still say what was.
bool needs_devices(const Request &req)
{
    return req.method == "POST" || req.path == "/health" || req.path == "/v1/health";
}

answer ask(const question &then, const Request &req, Response &res)
{
    char why[SERVE_REASON] = "";
    if (is_refused(req, why))
        return refuse(res, 403, why);
    if (!has_room(req))
        return refuse(res, 503, "the server answers as many requests as it can; ask again later");
    if (needs_devices(req) && wnw_bridge_check_workers(nullptr) != WNW_OK)
        return refuse(res, 503, wnw_last_error());
    return then(req, res);
}

} // namespace

void serve::open_front(const std::string &prefix, bool tls)
{
    own_page = prefix + "/";
    doors = {serve_settings()->names, serve_settings()->origins, own_page.c_str(), tls};
}

#define SET                                                                                             \
    "_ZN7httplib6Server23set_pre_routing_handlerESt8functionIFNS0_15HandlerResponseERKNS_7RequestERNS_" \
    "8ResponseEEE"

void *real_set(void *server, question then) __asm__("__real_" SET);
void *wrap_set(void *server, question then) __asm__("__wrap_" SET);

void *wrap_set(void *server, question then)
{
    return real_set(server, [then](const Request &req, Response &res) { return ask(then, req, res); });
}
