# Libraries, headers, find_package(mooncake_nvme_kv), pkg-config.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(PROGRAMS "${library_dir}/${shared_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${library_dir}/${shared_soname}" "${library_dir}/${shared_name}"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(MOONCAKE_NVME_KV_STATIC)
  install(FILES "${library_dir}/${static_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/mooncake_nvme_kv")
configure_package_config_file(cmake/config.cmake.in mooncake_nvme_kv-config.cmake
  INSTALL_DESTINATION "${package_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# As the soname: compatible while the major version stays.
write_basic_package_version_file(mooncake_nvme_kv-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mooncake_nvme_kv-config.cmake"
              "${PROJECT_BINARY_DIR}/mooncake_nvme_kv-config-version.cmake"
        DESTINATION "${package_dir}")

# Relative to the file, so that the installed tree can be moved; an absolute directory stays one.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH pc_up "/prefix/${pc_dir}" "/prefix")
  string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
  set(pc_prefix "\${pcfiledir}/${pc_up}")
endif()
foreach(directory IN ITEMS INCLUDEDIR LIBDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${directory}}")
    set(pc_${directory} "${CMAKE_INSTALL_${directory}}")
  else()
    set(pc_${directory} "\${prefix}/${CMAKE_INSTALL_${directory}}")
  endif()
endforeach()
list(TRANSFORM static_link_libraries PREPEND "-l" OUTPUT_VARIABLE pc_private_libraries)
list(JOIN pc_private_libraries " " pc_private_libraries)
configure_file(cmake/mooncake_nvme_kv.pc.in mooncake_nvme_kv.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/mooncake_nvme_kv.pc" DESTINATION "${pc_dir}")
