# SPDX-License-Identifier: MIT
# Tests with label `kernels` once more: those of kernels for every other family that this CPU can play (decision 049), as
# NAME.FAMILY with label kernels_FAMILY; and most with the rounding of another CPU (src/kernel/noise.h), as NAME.noise with label
# kernels_noise. Nothing is compiled twice but the files that differ: an executable is linked again, and their objects come before
# the library's. Those of kernels that a family lacks are empty.

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

# wnw_kernel_objects(FAMILY SOURCES...): what is linked before the library. The flags of kernels belong to the folder above; here such files become empty.
function(wnw_kernel_objects family)
  add_library(kernels_of_${family} OBJECT ${ARGN})
  target_include_directories(kernels_of_${family} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(kernels_of_${family} SYSTEM PRIVATE ${LLAMA_INCLUDE_DIR})
  target_link_libraries(kernels_of_${family} PRIVATE llama ggml::all wnw_flags)
  target_compile_options(kernels_of_${family} PRIVATE $<$<CONFIG:Release>:-O3>)
endfunction()

# A program in the folder of the family, where it finds what comes along as it does in the build folder.
function(wnw_family_program program name family)
  add_executable(${program}.${family} $<TARGET_OBJECTS:${program}> $<TARGET_OBJECTS:kernels_of_${family}>)
  foreach(property LINK_LIBRARIES LINK_OPTIONS)
    get_target_property(value ${program} ${property})
    if(value)
      set_property(TARGET ${program}.${family} PROPERTY ${property} ${value})
    endif()
  endforeach()
  set_target_properties(${program}.${family} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/kernels/${family})
endfunction()

# wnw_family_tests(FAMILY TESTS...): tests, and the command if there are scripts among them.
function(wnw_family_tests family)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels/${family})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/share ${CMAKE_BINARY_DIR}/kernels/${family}/share SYMBOLIC)
  foreach(name IN LISTS ARGN)
    if(TARGET ${name})
      wnw_family_program(${name} ${name} ${family})
      add_test(NAME ${name}.${family} COMMAND ${name}.${family} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    else()
      if(NOT TARGET winnow.${family})
        wnw_family_program(winnow winnow ${family})
      endif()
      string(REGEX REPLACE "^cli_" "" script ${name})
      add_test(NAME ${name}.${family} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cli/${script}.sh
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${name}.${family} PROPERTIES ENVIRONMENT "WINNOW=$<TARGET_FILE:winnow.${family}>")
    endif()
    set_tests_properties(${name}.${family} PROPERTIES LABELS kernels_${family} SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

# ---- Kernels of other CPUs ----
# Tests whose subject is what kernels compute run with every family. Tests of products compare
# two computations of the same kernels, or bounds that the noise below moves further than another family does: ALL asks for these.
# Scripts compare texts, which noise changes sooner, too.
set(family_tests ${wnw_kernel_tests})
list(FILTER family_tests EXCLUDE REGEX "^cli_")
set(of_kernels ${family_tests})
list(FILTER of_kernels INCLUDE REGEX "^unit_|^model_(attention|batch|observe|parity|projnorm|tail|trace|bridge_(logits|products))$")

foreach(family IN LISTS played)
  wnw_endings_of(${family} endings)
  set(left_out "")
  foreach(source IN LISTS WNW_SOURCES)
    if(source MATCHES "_([a-z0-9]+)\\.c$" AND CMAKE_MATCH_1 IN_LIST wnw_endings AND NOT CMAKE_MATCH_1 IN_LIST endings)
      list(APPEND left_out ${source})
    endif()
  endforeach()
  wnw_kernel_objects(${family} ${left_out})
  set(tests ${of_kernels})
  if(WNW_TEST_KERNELS STREQUAL "ALL")
    set(tests ${family_tests})
  endif()
  wnw_family_tests(${family} ${tests})
  # What kernels do not change was tested with the best ones: how threads share ggml's graphs, and graphs that are libllama's
  # but for attention of a form that others have, too (decision 110).
  list(TRANSFORM tests APPEND .${family})
  set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_THREAD_LIMIT=1 WNW_OTHER_KERNELS=1)
endforeach()

# ---- The rounding of another CPU ----
set(noisy kernel/noise.c kernel/kernel.c kernel/matmul.c attend/attend_tile.c attend/attend_decode.c attend/attend_cells.c
  attend/attend_columns.c observe/columns.c observe/window_attend.c observe/projnorm.c)
list(TRANSFORM noisy PREPEND ${PROJECT_SOURCE_DIR}/src/)
wnw_kernel_objects(noise ${noisy} lib/rounding.c)
target_compile_definitions(kernels_of_noise PRIVATE WNW_TEST_NOISE=1)
# A test that compares the same bits of the same kernels compares them without noise as well.
string(REGEX MATCH "\n## The same bits\n.*and these tests of other files" same_bits "${bounds}")
string(REGEX MATCHALL "`[a-z_]+`" same_bits "${same_bits}")
string(REPLACE "`" "" same_bits "${same_bits}")
set(noise_tests ${wnw_kernel_tests})
if(NOT WNW_TEST_KERNELS STREQUAL "ALL")
  list(REMOVE_ITEM noise_tests ${same_bits})
endif()
wnw_family_tests(noise ${noise_tests})
# As above: how threads share graphs is tested without noise, and threads that wait for each other hold a place of `ctest -j`.
list(TRANSFORM noise_tests APPEND .noise)
set_property(TEST ${noise_tests} APPEND PROPERTY ENVIRONMENT OMP_THREAD_LIMIT=1)
