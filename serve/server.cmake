# SPDX-License-Identifier: MIT
# llama.cpp's server: winnow-llama-server, which `winnow serve` starts, with our backend and extension in it, and for the
# tests the same server without them. Both are linked from the archive that `make server` compiles; nothing of libllama
# is compiled again. Under sanitizers there is none: the archive has no marks of theirs.
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

# A server, from the archive and the sources of ours that ARGN names.
function(wnw_server_program name)
  add_executable(${name} serve/main.cpp ${ARGN})
  target_link_libraries(${name} PRIVATE ${wnw_server_archive} ${WNW_LLAMA_COMMON} llama ggml::all Threads::Threads
                                        ${CMAKE_DL_LIBS} wnw_flags)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${wnw_server_archive})
endfunction()

if(WNW_TESTS)
  wnw_server_program(plain_llama_server)
endif()
