# Toolchain file: Linux on arm64 by Debian's cross compiler, with the libraries of an unpacked arm64 root (ci/arm64 makes
# one; -DUPGATE_ARM64_ROOT names it). Programs of the build run under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

set(UPGATE_ARM64_ROOT "" CACHE PATH "An unpacked arm64 root with libc6-dev")
if(NOT EXISTS "${UPGATE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/libc.so")
    message(FATAL_ERROR "UPGATE_ARM64_ROOT ('${UPGATE_ARM64_ROOT}') is no arm64 root with libc6-dev: ci/arm64 makes one")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES UPGATE_ARM64_ROOT)
set(CMAKE_SYSROOT "${UPGATE_ARM64_ROOT}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH "${UPGATE_ARM64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER) # clang, bpftool, python3: this machine's
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${UPGATE_ARM64_ROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${UPGATE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${UPGATE_ARM64_ROOT}/usr/share/pkgconfig")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${UPGATE_ARM64_ROOT}")
