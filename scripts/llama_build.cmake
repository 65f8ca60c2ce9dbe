# SPDX-License-Identifier: MIT
# Included by llama.cpp's build at its project() (see setup.sh).

# llama.cpp compiles its Jinja engine into libllama-common and installs no headers of it.
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/common/jinja DESTINATION include/llama-common FILES_MATCHING PATTERN *.h)

# Families of models, and parsers of their answers, are small files with the same large headers. Twenty of them together
# are compiled in a fifth of the time. They build graphs and read texts, so that no number depends on it.
# WNW_JOIN_FILES=OFF compiles each file by itself, as llama.cpp does.
option(WNW_JOIN_FILES "Compile small files of llama.cpp together" ON)

# Joins the files of a target whose paths have `folder`.
function(wnw_join target folder)
  get_target_property(files ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  foreach(file IN LISTS files)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${base})
    string(FIND "${file}" "${folder}" at)
    if(at EQUAL -1)
      set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 20)
endfunction()

if(WNW_JOIN_FILES) # at the end of this folder, when the targets are there
  cmake_language(DEFER CALL wnw_join llama /src/models/)
  cmake_language(DEFER CALL wnw_join llama-common /common/parsers/)
endif()
