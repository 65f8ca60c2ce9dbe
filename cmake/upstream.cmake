# SPDX-License-Identifier: MIT
# What winnow knows of the inside of llama.cpp's files, checked when a build folder is configured
# (docs/internals/upstream.md). tests/setup/upstream.sh calls the same functions on patched copies.

# Nodes of the Jinja engine's syntax trees that src/text/jinja_bounds.cpp goes through, or knows as leaves.
set(wnw_jinja_nodes expression program if_statement for_statement break_statement continue_statement noop_statement set_statement
  macro_statement comment_statement blank_expression member_expression call_expression identifier integer_literal float_literal
  string_literal array_literal tuple_literal object_literal binary_expression filter_expression filter_statement select_expression
  test_expression unary_expression slice_expression keyword_argument_expression spread_expression call_statement
  ternary_expression)

# wnw_compiles(OUT FAULT COMMAND...): "" if the command's files compile, else FAULT and the compiler's first error.
function(wnw_compiles out fault)
  execute_process(COMMAND ${ARGN} -fsyntax-only -Wfatal-errors RESULT_VARIABLE status ERROR_VARIABLE said OUTPUT_QUIET)
  set(why "")
  if(NOT status EQUAL 0)
    string(REGEX MATCH "error: [^\n]*" why "${said}")
    set(why "${fault} (${why})")
  endif()
  set(${out} "${why}" PARENT_SCOPE)
endfunction()

# wnw_jinja_misfit(OUT COMPILER INCLUDE-DIR SOURCE-DIR FOLDERS...): why the engine with headers INCLUDE-DIR/jinja is not the one that
# src/text/jinja*.cpp know; "" if it is. FOLDERS are of other headers.
function(wnw_jinja_misfit out compiler headers source)
  file(STRINGS ${headers}/jinja/runtime.h lines REGEX "^struct [a-z_]+ *: *public (statement|expression)")
  set(strange "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^struct ([a-z_]+).*" "\\1" name "${line}")
    if(NOT name IN_LIST wnw_jinja_nodes)
      list(APPEND strange ${name})
    endif()
  endforeach()
  if(strange)
    list(JOIN strange ", " strange)
    set(${out} "its syntax tree has nodes that are not known: ${strange}" PARENT_SCOPE)
    return()
  endif()
  list(TRANSFORM ARGN PREPEND -I OUTPUT_VARIABLE folders)
  wnw_compiles(why "src/text/jinja*.cpp do not compile with its headers" ${compiler} -std=c++17 -w -I${source}/include -I${source}/src -I${headers}
               ${folders} ${source}/src/text/jinja.cpp ${source}/src/text/jinja_meter.cpp ${source}/src/text/jinja_bounds.cpp ${source}/src/text/jinja_calls.cpp)
  set(${out} "${why}" PARENT_SCOPE)
endfunction()

# wnw_bridge_misfit(OUT COMPILER HEADERS SOURCE-DIR FOLDERS...): why the backend does not compile with ggml's private header in
# HEADERS; "" if it does. FOLDERS are of other headers.
function(wnw_bridge_misfit out compiler headers source)
  list(TRANSFORM ARGN PREPEND -I OUTPUT_VARIABLE folders)
  set(sources ${source}/src/bridge/device/device.c ${source}/src/bridge/cells/buffer.c ${source}/src/bridge/cells/contacts.c
      ${source}/src/bridge/graph/fuse.c ${source}/src/bridge/device/run.c)
  wnw_compiles(why "src/bridge does not compile with its headers" ${compiler} -std=c11 -D_GNU_SOURCE -Werror=incompatible-pointer-types
               -Werror=implicit-function-declaration -Werror=int-conversion "-DWNW_GGML_BUILT_VERSION=\"\""
               "-DWNW_GGML_BUILT_COMMIT=\"\"" -I${source}/include -I${source}/src ${folders} -I${headers} ${sources})
  set(${out} "${why}" PARENT_SCOPE)
endfunction()

# wnw_files_sum(OUT FILES...): one number for what is in them.
function(wnw_files_sum out)
  set(sum "")
  foreach(file IN LISTS ARGN)
    file(SHA256 ${file} one)
    string(SHA256 sum "${sum}${one}")
  endforeach()
  set(${out} "${sum}" PARENT_SCOPE)
endfunction()

# wnw_sequence_version(OUT LLAMA.H): the version of the form in which libllama saves a sequence.
function(wnw_sequence_version out header)
  file(STRINGS ${header} line REGEX "^#define LLAMA_STATE_SEQ_VERSION +[0-9]+")
  string(REGEX REPLACE "^#define LLAMA_STATE_SEQ_VERSION +([0-9]+).*" "\\1" version "${line}")
  if(NOT version)
    set(version 0)
  endif()
  set(${out} ${version} PARENT_SCOPE)
endfunction()

# wnw_names_missing(OUT LISTING PREFIX NAMES...): which names are on no line "PREFIX NAME" of what nm has listed.
function(wnw_names_missing out listing prefix)
  set(missing "")
  foreach(name IN LISTS ARGN)
    string(FIND "${listing}" "${prefix} ${name}\n" at)
    if(at EQUAL -1)
      list(APPEND missing ${name})
    endif()
  endforeach()
  set(${out} "${missing}" PARENT_SCOPE)
endfunction()
