# SPDX-License-Identifier: MIT
# The tests with label `kernels` once more for every other family of kernels that this CPU can play (decision 049), as
# NAME.FAMILY with label kernels_FAMILY. Nothing is compiled twice: an executable is linked again, and empty objects in
# place of the kernels that the family lacks come before the library's.

# The most that this CPU runs of the kernels that are built: up to the last family that it has a feature of.
set(features "")
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo features REGEX "^(flags|Features)[ \t]*:" LIMIT_COUNT 1)
endif()
string(REGEX MATCHALL "[a-z0-9_]+" features "${features}")
set(played none)
foreach(family IN LISTS wnw_families)
  foreach(feature IN LISTS wnw_cpu_${family})
    if(feature IN_LIST features AND NOT family IN_LIST played)
      list(APPEND played ${family})
    endif()
  endforeach()
  if(family STREQUAL WNW_KERNELS)
    break()
  endif()
endforeach()
list(POP_BACK played most)
list(REVERSE played)
set(WNW_TESTED_KERNELS ${most} ${played} CACHE INTERNAL "families of kernels that tests run with")
message(STATUS "kernels in tests: ${most}, and once more where tests depend on them: ${played}")

# Tests in the folder of the family, where a program finds what comes along as it does in the build folder.
function(wnw_family_program program name family)
  add_executable(${program}.${family} $<TARGET_OBJECTS:${program}> $<TARGET_OBJECTS:kernels_beyond_${family}>)
  foreach(property LINK_LIBRARIES LINK_OPTIONS)
    get_target_property(value ${program} ${property})
    if(value)
      set_property(TARGET ${program}.${family} PROPERTY ${property} ${value})
    endif()
  endforeach()
  set_target_properties(${program}.${family} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/kernels/${family})
endfunction()

foreach(family IN LISTS played)
  wnw_endings_of(${family} endings)
  set(left_out "")
  foreach(source IN LISTS WNW_SOURCES)
    if(source MATCHES "_([a-z0-9]+)\\.c$" AND CMAKE_MATCH_1 IN_LIST wnw_endings AND NOT CMAKE_MATCH_1 IN_LIST endings)
      list(APPEND left_out ${source})
    endif()
  endforeach()
  # The flags of kernels belong to the folder above; here the files become empty.
  add_library(kernels_beyond_${family} OBJECT ${left_out})
  target_include_directories(kernels_beyond_${family} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(kernels_beyond_${family} SYSTEM PRIVATE ${LLAMA_INCLUDE_DIR})
  target_link_libraries(kernels_beyond_${family} PRIVATE llama ggml::all wnw_flags)

  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels/${family})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/share ${CMAKE_BINARY_DIR}/kernels/${family}/share SYMBOLIC)
  wnw_family_program(winnow winnow ${family})
  foreach(name IN LISTS wnw_kernel_tests)
    if(family STREQUAL "none" AND name IN_LIST not_scalar)
      continue()
    endif()
    if(TARGET ${name})
      wnw_family_program(${name} ${name} ${family})
      add_test(NAME ${name}.${family} COMMAND ${name}.${family} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    else()
      string(REGEX REPLACE "^cli_" "" script ${name})
      add_test(NAME ${name}.${family} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cli/${script}.sh
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${name}.${family} PROPERTIES ENVIRONMENT "WINNOW=$<TARGET_FILE:winnow.${family}>")
    endif()
    set_tests_properties(${name}.${family} PROPERTIES LABELS kernels_${family} SKIP_RETURN_CODE 77)
    # What kernels do not change was tested with the best ones: how threads share ggml's graphs, and graphs that are libllama's
    # but for attention of a form that others have, too (decision 110).
    set_property(TEST ${name}.${family} APPEND PROPERTY ENVIRONMENT OMP_THREAD_LIMIT=1 WNW_OTHER_KERNELS=1)
  endforeach()
endforeach()
