# Read by cpack when a tree is installed and not yet packed: what Debian wants of a package, or the libraries of a tarball.
set(stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
if(CPACK_GENERATOR STREQUAL "DEB")
    include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
    packages_debian(${stage}/usr)
else()
    include(${CMAKE_CURRENT_LIST_DIR}/bundle.cmake)
    packages_bundle(${stage})
endif()
