# SPDX-License-Identifier: MIT
# Included by llama.cpp's build at its project() (see setup.sh).

# llama.cpp compiles its Jinja engine into libllama-common and installs no headers of it.
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/common/jinja DESTINATION include/llama-common FILES_MATCHING PATTERN *.h)

# Every family of models is a small file with the same large headers. Twenty of them together are compiled in a fifth
# of the time. The files build graphs and compute nothing, so that no number depends on it. WNW_JOIN_MODELS=OFF compiles
# each file by itself, as llama.cpp does.
option(WNW_JOIN_MODELS "Compile files of families together" ON)

function(wnw_join_models)
  get_target_property(files llama SOURCES)
  get_target_property(folder llama SOURCE_DIR)
  foreach(file IN LISTS files)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${folder})
    if(NOT file MATCHES "/src/models/[^/]*\\.cpp$")
      set_source_files_properties(${file} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(llama PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 20)
endfunction()

if(WNW_JOIN_MODELS)
  cmake_language(DEFER CALL wnw_join_models) # at the end of this folder, when the target is there
endif()
