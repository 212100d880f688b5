# The Rust library as imported targets:
#   mooncake_nvme_kv::headers                  include directories, for users of dlopen
#   mooncake_nvme_kv::mooncake_nvme_kv         the shared library
#   mooncake_nvme_kv::mooncake_nvme_kv_static  the static one, with MOONCAKE_NVME_KV_STATIC

find_program(CARGO_EXECUTABLE cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin")
if(NOT CARGO_EXECUTABLE)
  message(FATAL_ERROR "cargo not found; install Rust 1.90 or later with rustup (https://rustup.rs) "
                      "or set CARGO_EXECUTABLE")
endif()

set(library_dir "${PROJECT_BINARY_DIR}/lib")
set(shared_name "libmooncake_nvme_kv.so")
# As build.rs names it.
set(shared_soname "${shared_name}.${PROJECT_VERSION_MAJOR}")
set(shared_file "${shared_name}.${PROJECT_VERSION}")
set(static_file "libmooncake_nvme_kv.a")
# What the Rust standard library needs of the system; a test compares it with rustc's own answer.
set(static_link_libraries gcc_s util rt pthread m dl c)

set(crate_types cdylib)
if(MOONCAKE_NVME_KV_STATIC)
  string(APPEND crate_types ",staticlib")
endif()
set(cargo_arguments --locked --lib --crate-type ${crate_types}
                    --manifest-path "${PROJECT_SOURCE_DIR}/Cargo.toml"
                    --target-dir "${PROJECT_BINARY_DIR}/cargo")
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(cargo_output_dir "${PROJECT_BINARY_DIR}/cargo/debug")
else()
  list(APPEND cargo_arguments --release)
  set(cargo_output_dir "${PROJECT_BINARY_DIR}/cargo/release")
endif()
if(NOT MOONCAKE_NVME_KV_EMULATED)
  list(APPEND cargo_arguments --no-default-features)
endif()
set(native_libraries_file "${PROJECT_BINARY_DIR}/native-static-libs.txt")
set(rustc_arguments "--print=native-static-libs=${native_libraries_file}")

# Cargo itself knows what is out of date, so it is always asked.
add_custom_target(mooncake_nvme_kv_cargo ALL
  COMMAND "${CARGO_EXECUTABLE}" rustc ${cargo_arguments} -- ${rustc_arguments}
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${library_dir}"
  COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${cargo_output_dir}/${shared_name}"
          "${library_dir}/${shared_file}"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "${shared_file}" "${library_dir}/${shared_soname}"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "${shared_soname}" "${library_dir}/${shared_name}"
  BYPRODUCTS "${library_dir}/${shared_name}" "${library_dir}/${shared_soname}"
             "${library_dir}/${shared_file}"
  COMMENT "Building the Rust library"
  USES_TERMINAL VERBATIM)

add_library(mooncake_nvme_kv_headers INTERFACE)
add_library(mooncake_nvme_kv::headers ALIAS mooncake_nvme_kv_headers)
target_include_directories(mooncake_nvme_kv_headers INTERFACE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(mooncake_nvme_kv_headers INTERFACE ${CMAKE_DL_LIBS})

add_library(mooncake_nvme_kv::mooncake_nvme_kv SHARED IMPORTED GLOBAL)
set_target_properties(mooncake_nvme_kv::mooncake_nvme_kv PROPERTIES
  IMPORTED_LOCATION "${library_dir}/${shared_file}"
  IMPORTED_SONAME "${shared_soname}"
  INTERFACE_LINK_LIBRARIES mooncake_nvme_kv::headers)
add_dependencies(mooncake_nvme_kv::mooncake_nvme_kv mooncake_nvme_kv_cargo)

if(MOONCAKE_NVME_KV_STATIC)
  add_custom_target(mooncake_nvme_kv_cargo_static ALL
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${cargo_output_dir}/${static_file}"
            "${library_dir}/${static_file}"
    BYPRODUCTS "${library_dir}/${static_file}"
    VERBATIM)
  add_dependencies(mooncake_nvme_kv_cargo_static mooncake_nvme_kv_cargo)
  add_library(mooncake_nvme_kv::mooncake_nvme_kv_static STATIC IMPORTED GLOBAL)
  set_target_properties(mooncake_nvme_kv::mooncake_nvme_kv_static PROPERTIES
    IMPORTED_LOCATION "${library_dir}/${static_file}"
    INTERFACE_LINK_LIBRARIES "mooncake_nvme_kv::headers;${static_link_libraries}")
  add_dependencies(mooncake_nvme_kv::mooncake_nvme_kv_static mooncake_nvme_kv_cargo_static)
endif()
