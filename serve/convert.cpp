// SPDX-License-Identifier: MIT
// Bodies of other vendors' routes. llama.cpp's server converts them into ordinary chat requests; we ask its functions for the same, and
// where one drops the slot that a request was given, the linker sends the server's call here (--wrap, server.cmake).
#include "serve/request.h"

#include "json.h"

#include <cstdio>
#include <cstring>
#include <exception>

common_json real_messages(const common_json &body) __asm__(
    "__real__Z36server_chat_convert_anthropic_to_oaiRK11common_json");
common_json wrap_messages(const common_json &body) __asm__(
    "__wrap__Z36server_chat_convert_anthropic_to_oaiRK11common_json");
common_json real_responses(const common_json &body) __asm__(
    "_Z41server_chat_convert_responses_to_chatcmplRK11common_json");

common_json wrap_messages(const common_json &body)
{
    common_json chat = real_messages(body);
    for (const char *key : {"id_slot", "cache_prompt"})
        if (body.contains(key))
            chat[key] = body.at(key);
    return chat;
}

char *serve_convert(serve_form form, const char *body, char *why)
{
    try {
        const common_json asked = common_json::parse(body);
        return strdup(
            (form == SERVE_FORM_MESSAGES ? real_messages(asked) : real_responses(asked)).dump_safe().c_str());
    } catch (const std::exception &e) {
        std::snprintf(why, SERVE_TEXT, "%s", e.what());
        return nullptr;
    }
}
