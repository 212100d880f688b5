# What tests and examples are compiled with in the place of a Mooncake build.
find_path(TL_EXPECTED_INCLUDE_DIR tl/expected.hpp)
if(NOT TL_EXPECTED_INCLUDE_DIR)
  message(FATAL_ERROR "tl/expected.hpp not found; install libexpected-dev "
                      "or set TL_EXPECTED_INCLUDE_DIR")
endif()

add_library(stand_alone INTERFACE)
target_compile_features(stand_alone INTERFACE cxx_std_20)
target_include_directories(stand_alone INTERFACE "${PROJECT_SOURCE_DIR}/cpp_tests/interface")
target_include_directories(stand_alone SYSTEM INTERFACE "${TL_EXPECTED_INCLUDE_DIR}")
target_compile_options(stand_alone INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
if(MOONCAKE_NVME_KV_SANITIZE)
  target_compile_options(stand_alone INTERFACE
    -fsanitize=${MOONCAKE_NVME_KV_SANITIZE} -fno-sanitize-recover=all -g)
  target_link_options(stand_alone INTERFACE -fsanitize=${MOONCAKE_NVME_KV_SANITIZE})
endif()
