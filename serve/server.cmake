# SPDX-License-Identifier: MIT
# llama.cpp's server: winnow-llama-server, which `winnow serve` starts, with our backend and extension in it, and for the
# tests the same server without them. Both are linked from the archive that `make server` compiles; nothing of libllama
# is compiled again. Under sanitizers there is none: the archive has no marks of theirs.
# What needs no server, and is tested by itself.
add_library(winnow_serve STATIC serve/automatic.c serve/batches.c serve/bodies.c serve/document_file.c serve/documents.c serve/fields.c serve/grammar.c serve/memory.c serve/origins.c serve/park_file.c serve/park_folder.c serve/park_tickets.c serve/parks.c serve/parse.c serve/prefix.c serve/request.c serve/request_adapters.c serve/request_messages.c
  serve/request_prompt.c serve/schema.c
  serve/restores.c serve/sequences.c serve/sha256.c serve/slot_file.c serve/slot_state.c serve/slots.c serve/slots_cap.c serve/slots_claim.c serve/slots_show.c serve/tickets.c serve/values.c serve/keep_rule.c serve/why.c)
set_target_properties(winnow_serve PROPERTIES POSITION_INDEPENDENT_CODE ON) # as of any program's library
target_include_directories(winnow_serve PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(winnow_serve PUBLIC winnow_lib PkgConfig::JANSSON PRIVATE wnw_flags PkgConfig::XXHASH)
set(wnw_server_archive ${wnw_cache}/llama-server/libllama-server.a)
set(wnw_server OFF)
string(FIND "${ggml_DIR}" "${wnw_cache}/" wnw_at)
if(wnw_bridge AND wnw_at EQUAL 0 AND WNW_LLAMA_COMMON AND EXISTS ${wnw_server_archive} AND NOT WNW_SANITIZE)
  set(wnw_server ON)
endif()
message(STATUS "server: ${wnw_server} (${wnw_server_archive}; `make server` compiles it)")
if(NOT wnw_server)
  add_custom_target(winnow_server COMMAND ${CMAKE_COMMAND} -E echo "there is no server to build: scripts/setup.sh server"
                                  COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

# A server, from llama.cpp's archive and winnow's sources that ARGN names.
function(wnw_server_program name)
  add_executable(${name} serve/main.cpp ${ARGN})
  target_link_libraries(${name} PRIVATE ${wnw_server_archive} ${WNW_LLAMA_COMMON} llama ggml::all Threads::Threads
                                        ${CMAKE_DL_LIBS} wnw_flags)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${wnw_server_archive})
endfunction()

# The extension's way in: calls that are sent to it by their mangled names.
set(wnw_handler "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE")
set(wnw_wrapped _ZNK19server_http_context4postE${wnw_handler} _ZNK19server_http_context3getE${wnw_handler}
  _ZNK19server_http_context3delE${wnw_handler} _ZN12server_queue17pop_deferred_taskEi _ZN7httplib10ThreadPool7enqueueESt8functionIFvvEE
  _ZN7httplib10ThreadPool8shutdownEv _ZN7httplib6Server16set_read_timeoutEll
  _ZN7httplib6Server23set_pre_routing_handlerESt8functionIFNS0_15HandlerResponseERKNS_7RequestERNS_8ResponseEEE _ZN19server_http_context5startEv
  _ZN22server_response_reader9post_taskEO11server_taskb _ZN22server_response_reader10post_tasksEOSt6vectorI11server_taskSaIS1_EEb
  _ZN14server_context10start_loopEv _ZN7httplib6Server17listen_after_bindEv _Z36server_chat_convert_anthropic_to_oaiRK11common_json _ZNK13server_tokens17get_common_prefixERKS_)
execute_process(COMMAND ${CMAKE_NM} --undefined-only ${wnw_server_archive} OUTPUT_VARIABLE wnw_names ERROR_QUIET)
set(wnw_routes serve/adapters.cpp serve/internal_requests.cpp serve/call.cpp serve/common_prefix.c serve/connections.cpp serve/convert.cpp serve/deferred.cpp serve/front.cpp serve/generate.cpp serve/moves.cpp serve/pages.cpp serve/parking.cpp serve/load_documents.cpp serve/replies.cpp serve/routes.cpp serve/start.cpp)
set(wnw_pages "")
foreach(page "serve;serve_page" "inspect;serve_inspect_html")
  list(GET page 0 from)
  list(GET page 1 name)
  set(to ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
  add_custom_command(OUTPUT ${to} VERBATIM DEPENDS share/pages/${from}.html serve/embed.cmake
    COMMAND ${CMAKE_COMMAND} -DFROM=${PROJECT_SOURCE_DIR}/share/pages/${from}.html -DTO=${to} -DNAME=${name}
            -P ${PROJECT_SOURCE_DIR}/serve/embed.cmake)
  list(APPEND wnw_pages ${to})
endforeach()
wnw_names_missing(wnw_missing "${wnw_names}" U ${wnw_wrapped} _ZN14server_context9terminateEv)
if(wnw_missing)
  message(WARNING "llama.cpp's server does not call ${wnw_missing}: winnow-llama-server is built without policies of requests, "
                  "without /winnow/kv, and without a check of who asks (docs/internals/upstream.md)")
  set(wnw_routes "")
endif()
# Functions of cpp-httplib that are defined here in front of those of libllama-common, which calls them by their names.
execute_process(COMMAND ${CMAKE_NM} -D --defined-only ${WNW_LLAMA_COMMON} OUTPUT_VARIABLE wnw_names ERROR_QUIET)
wnw_names_missing(wnw_missing "${wnw_names}" "" _ZN7httplib6Server24process_and_close_socketEi _ZN7httplib6detail22drain_and_close_socketEi
        _ZN7httplib6Server15process_requestERNS_6StreamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiSA_ibRbRKSt8functionIFvRNS_7RequestEEEPb)
if(wnw_missing)
  message(WARNING "libllama-common does not show ${wnw_missing}: in winnow-llama-server nothing bounds connections and half requests")
endif()
wnw_server_program(winnow_server serve/borders.c serve/breaks.c serve/calls.c serve/compress.c serve/config.c serve/decode.c serve/document_cells.c serve/give_up.c serve/join_cells.c serve/join_room.c serve/inspect.c
  serve/slot_view.c serve/park_begin.c serve/plain.c serve/libllama_real.c serve/rule.c serve/sample.c serve/slot_save.c serve/settings.c serve/stretch.c serve/watched.c ${wnw_pages} ${wnw_routes})
target_sources(winnow_server PRIVATE $<TARGET_OBJECTS:winnow_need_cpu>)
set_target_properties(winnow_server PROPERTIES OUTPUT_NAME winnow-llama-server)
target_include_directories(winnow_server PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_include_directories(winnow_server SYSTEM PRIVATE ${wnw_cache}/llama-server ${LLAMA_INCLUDE_DIR})
# Of what programs share, the few files that are used: as an archive, whose own libraries are not linked with it.
add_dependencies(winnow_server winnow_app)
target_link_libraries(winnow_server PRIVATE winnow_serve $<TARGET_FILE:winnow_app> winnow_lib PkgConfig::JANSSON)
if(wnw_routes)
  set(wnw_at 1)
else()
  set(wnw_at 0)
endif()
set_source_files_properties(serve/config.c PROPERTIES COMPILE_DEFINITIONS WNW_SERVE_ROUTES=${wnw_at})
if(wnw_routes)
  foreach(name IN LISTS wnw_wrapped)
    target_link_options(winnow_server PRIVATE LINKER:--wrap=${name})
  endforeach()
endif()

if(WNW_TESTS)
  wnw_server_program(plain_llama_server)
endif()
