# What `cpack` makes of an install: a .deb against the libraries of the distribution, a tarball that brings them along and runs
# wherever it is unpacked. ci/packages builds both, and the wheel from the tarball's tree. stage.cmake here finishes the trees.
set(CPACK_PACKAGE_NAME upgate)
set(CPACK_PACKAGE_VENDOR upgate)
set(CPACK_PACKAGE_CONTACT "The maintainers of upgate <upgate@packages.invalid>" CACHE STRING "Name and address in the .deb")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "judge an upgrade of a framework or of CUDA, and say why it is slow")
set(CPACK_PACKAGE_DESCRIPTION
"upgate runs the same workloads under two framework or CUDA versions, side
by side on one machine, and gives a verdict that carries error rates. It
records running programs from outside with eBPF, and their GPUs with CUPTI,
and names what held them up: the lock, the kernel function, the process. It
shifts live traffic to a new stack in stages, and takes it back by itself.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_FILE_NAME upgate-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_THREADS 0)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3 (>= 3.8), haproxy")

set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/generator.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/stage.cmake)
set(CPACK_UPGATE_COMMIT_HEADER ${CMAKE_BINARY_DIR}/harness/commit.h)
if(CMAKE_CROSSCOMPILING)
    set(CPACK_UPGATE_SYSROOT ${CMAKE_SYSROOT})
    set(CPACK_UPGATE_OBJDUMP ${CMAKE_OBJDUMP})
endif()
include(CPack)
