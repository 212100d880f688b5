# Makes a Mooncake Store build use this library as its NVMe KV backend, without touching its tree:
#
#   cmake -S mooncake -B build -DCMAKE_PROJECT_MooncakeStore_INCLUDE=<this file>
#
# The file that creates storage backends is compiled with include/ of this folder in front, so that
# the name NvmeKvStorageBackend means the library's class, and whatever it is linked into is linked
# with the library. Mooncake's own sources stay in the build and become dead code: its tests use
# parts of them.
#
# Settings, besides those of the library's own CMakeLists.txt:
#   MOONCAKE_NVME_KV_STATIC      link the static library, not the shared one
#   MOONCAKE_NVME_KV_TEST_SHIM   compile Mooncake's own test of its NVMe KV backend the same way
#   MOONCAKE_NVME_KV_DESTINATION_SLACK
#                                bytes behind every destination that the users of Mooncake's factory
#                                keep writable; FileStorage keeps 4096, Mooncake's tests none
#   mooncake_nvme_kv_DIR         use an installed library; unset, it is built with Mooncake
if(CMAKE_VERSION VERSION_LESS 3.19)
  message(FATAL_ERROR "mooncake_nvme_kv: CMake ${CMAKE_VERSION} cannot defer calls; "
                      "use 3.19 or later (3.21 to build the library along)")
endif()

option(MOONCAKE_NVME_KV_TEST_SHIM
       "Compile Mooncake's test of its NVMe KV backend against mooncake_nvme_kv" OFF)
set(MOONCAKE_NVME_KV_DESTINATION_SLACK 0 CACHE STRING
    "Bytes behind every destination of a load that may be written; Mooncake's FileStorage has 4096")

set(mooncake_nvme_kv_kit "${CMAKE_CURRENT_LIST_DIR}")
if(mooncake_nvme_kv_DIR)
  find_package(mooncake_nvme_kv CONFIG REQUIRED)
  # The imported targets of a package are seen in this directory only.
  foreach(target IN ITEMS headers mooncake_nvme_kv mooncake_nvme_kv_static)
    if(TARGET mooncake_nvme_kv::${target})
      set_target_properties(mooncake_nvme_kv::${target} PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
  endforeach()
else()
  add_subdirectory("${mooncake_nvme_kv_kit}/../.." "${CMAKE_BINARY_DIR}/mooncake_nvme_kv")
endif()

# Every target of `directory` and below, in `out`.
function(mooncake_nvme_kv_targets directory out)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory IN LISTS subdirectories)
    mooncake_nvme_kv_targets("${subdirectory}" below)
    list(APPEND targets ${below})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# Compiles the source file `path` of `target` with the shim headers in front.
function(mooncake_nvme_kv_put_in_front target path)
  # A quoted include looks beside the including file first, where no option can come between.
  get_filename_component(directory "${path}" DIRECTORY)
  foreach(header IN ITEMS nvme_kv_backend.h nvme_kv/backend.h nvme_kv/nvme_kv_backend.h)
    if(EXISTS "${directory}/${header}")
      message(FATAL_ERROR "mooncake_nvme_kv: ${directory}/${header} lies beside ${path}, where it "
                          "cannot be replaced; this version of Mooncake needs a newer kit")
    endif()
  endforeach()
  set_property(SOURCE "${path}" TARGET_DIRECTORY ${target} APPEND PROPERTY INCLUDE_DIRECTORIES
               "${mooncake_nvme_kv_kit}/include"
               "$<TARGET_PROPERTY:mooncake_nvme_kv::headers,INTERFACE_INCLUDE_DIRECTORIES>")
endfunction()

# What compiles a source file whose path matches `pattern`: a list of target and absolute path, in
# turn, in `out`.
function(mooncake_nvme_kv_find_source targets pattern out)
  set(found "")
  foreach(target IN LISTS targets)
    get_target_property(sources ${target} SOURCES)
    get_target_property(directory ${target} SOURCE_DIR)
    foreach(source IN LISTS sources)
      get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${directory}")
      if(path MATCHES "${pattern}")
        list(APPEND found ${target} "${path}")
      endif()
    endforeach()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Links the library into every target that contains the objects of `compiled`.
#
# The properties are set directly: target_link_libraries() refuses a target whose own calls are in
# the other of its two forms, and the tree may use either.
function(mooncake_nvme_kv_link targets compiled)
  set(library mooncake_nvme_kv::mooncake_nvme_kv)
  if(MOONCAKE_NVME_KV_STATIC)
    set(library mooncake_nvme_kv::mooncake_nvme_kv_static)
  endif()
  if(NOT TARGET ${library})
    message(FATAL_ERROR "mooncake_nvme_kv: ${library} is not in the package at "
                        "${mooncake_nvme_kv_DIR}; install the library with MOONCAKE_NVME_KV_STATIC=ON")
  endif()
  set(linked "")
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(type STREQUAL "OBJECT_LIBRARY")
      continue()
    endif()
    if(target STREQUAL compiled OR "$<TARGET_OBJECTS:${compiled}>" IN_LIST sources)
      set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES ${library})
      set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${library})
      list(APPEND linked ${target})
    endif()
  endforeach()
  if(NOT linked)
    message(FATAL_ERROR "mooncake_nvme_kv: no library contains the objects of ${compiled}, "
                        "so there is nothing to link with; this version of Mooncake needs a newer kit")
  endif()
  list(JOIN linked ", " linked)
  message(STATUS "mooncake_nvme_kv: ${linked}: linked with ${library}")
endfunction()

# Runs when all of mooncake-store is known.
function(mooncake_nvme_kv_switch)
  mooncake_nvme_kv_targets("${CMAKE_CURRENT_SOURCE_DIR}" targets)

  mooncake_nvme_kv_find_source("${targets}" "/storage_backend\\.cpp$" factories)
  if(NOT factories)
    message(FATAL_ERROR "mooncake_nvme_kv: nothing below ${CMAKE_CURRENT_SOURCE_DIR} compiles a "
                        "storage_backend.cpp, where Mooncake creates its storage backends; "
                        "run integration/mooncake/check on the tree")
  endif()
  while(factories)
    list(POP_FRONT factories target path)
    mooncake_nvme_kv_put_in_front(${target} "${path}")
    if(MOONCAKE_NVME_KV_DESTINATION_SLACK)
      set_property(SOURCE "${path}" TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_DEFINITIONS
                   MOONCAKE_NVME_KV_DESTINATION_SLACK=${MOONCAKE_NVME_KV_DESTINATION_SLACK})
    endif()
    message(STATUS "mooncake_nvme_kv: ${path}: NVMe KV backend replaced")
    mooncake_nvme_kv_link("${targets}" ${target})
  endwhile()

  if(MOONCAKE_NVME_KV_TEST_SHIM)
    mooncake_nvme_kv_find_source("${targets}" "nvme_kv[^/]*/?[^/]*backend_test\\.cpp$" tests)
    if(NOT tests)
      message(FATAL_ERROR "mooncake_nvme_kv: MOONCAKE_NVME_KV_TEST_SHIM is on, but no target "
                          "compiles a test of the NVMe KV backend; set BUILD_UNIT_TESTS=ON")
    endif()
    while(tests)
      list(POP_FRONT tests target path)
      mooncake_nvme_kv_put_in_front(${target} "${path}")
      message(STATUS "mooncake_nvme_kv: ${path}: tests mooncake_nvme_kv")
    endwhile()
  endif()
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" CALL mooncake_nvme_kv_switch)
