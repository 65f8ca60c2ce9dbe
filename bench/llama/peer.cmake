# SPDX-License-Identifier: MIT
# The program that `winnow bench` runs as llama.cpp, from the same files wherever it is made: by `make peers` with a llama.cpp for this CPU,
# and among the tests with the libllama of the build. It links nothing of libwinnow.
set(wnw_root ${CMAKE_CURRENT_LIST_DIR}/../..)

function(wnw_add_peer target)
  add_executable(${target} ${wnw_root}/bench/llama/main.c ${wnw_root}/bench/llama/serve.c ${wnw_root}/bench/llama/llama.c
                 ${wnw_root}/app/process.c)
  target_include_directories(${target} PRIVATE ${wnw_root} ${wnw_root}/src ${wnw_root}/include)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_link_libraries(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
