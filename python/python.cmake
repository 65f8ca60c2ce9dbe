# SPDX-License-Identifier: MIT
# The libraries and the command of the Python package, for -DWNW_PYTHON=ON (pyproject.toml): one shared library has libwinnow and the whole
# command, so that `winnow.evaluate` runs scorers of the Python process. The package finds its parts by $ORIGIN.
add_library(winnow_python SHARED python/entry.c python/sequence.c $<TARGET_OBJECTS:winnow_objects>)
set_target_properties(winnow_python PROPERTIES OUTPUT_NAME winnow LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/lib BUILD_RPATH "${LLAMA_LIB_DIR}" INSTALL_RPATH "${LLAMA_LIB_DIR}"
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libwinnow.map)
target_link_libraries(winnow_python PRIVATE winnow_cli wnw_flags)
target_link_options(winnow_python PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/libwinnow.map LINKER:--no-undefined)
target_include_directories(winnow_python PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)

# For glibc 2.28 (scripts/wheel_symbols.py): what it lacks, and how programs begin.
add_library(winnow_compat SHARED python/compat.c)
set_target_properties(winnow_compat PROPERTIES OUTPUT_NAME winnow-compat)
target_link_libraries(winnow_compat PRIVATE wnw_flags)
install(TARGETS winnow_compat LIBRARY DESTINATION winnow/lib COMPONENT python)
# wnw_starts(PROGRAM): it runs its constructors where the C library does not.
function(wnw_starts program)
  target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/python/start.c)
  target_link_options(${program} PRIVATE LINKER:--wrap=main)
endfunction()

add_executable(winnow_python_command python/program.c $<TARGET_OBJECTS:winnow_need_cpu>)
wnw_starts(winnow_python_command)
target_include_directories(winnow_python_command PRIVATE ${PROJECT_SOURCE_DIR} include)
target_link_libraries(winnow_python_command PRIVATE winnow_python wnw_flags)
set_target_properties(winnow_python_command PROPERTIES OUTPUT_NAME winnow RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/bin
  INSTALL_RPATH "$ORIGIN/../lib")
# libggml and libllama are found by the library's path, also where the command starts it.
target_link_options(winnow_python_command PRIVATE LINKER:--allow-shlib-undefined)

install(TARGETS winnow_python LIBRARY DESTINATION winnow/lib COMPONENT python)
install(TARGETS winnow_python_command RUNTIME DESTINATION winnow/bin COMPONENT python)
install(DIRECTORY share/ DESTINATION winnow/share/winnow COMPONENT python)
install(FILES LICENSE NOTICE DESTINATION winnow/share/doc COMPONENT python)
install(DIRECTORY include/ DESTINATION winnow/include COMPONENT python)
add_custom_target(winnow_package DEPENDS winnow_python winnow_python_command winnow_compat)
if(wnw_bridge)
  add_dependencies(winnow_package winnow_bridge)
  install(TARGETS winnow_bridge LIBRARY DESTINATION winnow/lib/winnow COMPONENT python)
endif()
if(wnw_server)
  add_dependencies(winnow_package winnow_server)
  wnw_starts(winnow_server)
  set_target_properties(winnow_server PROPERTIES INSTALL_RPATH "${LLAMA_LIB_DIR}")
  install(TARGETS winnow_server RUNTIME DESTINATION winnow/lib/winnow COMPONENT python)
endif()
