# Every header of the house compiles alone, with all warnings: one test in C, and for contracts/,
# which C++ and CUDA workloads include too, one in C++. The compiler itself is the test.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/common/*.h ${CMAKE_SOURCE_DIR}/contracts/*.h ${CMAKE_SOURCE_DIR}/harness/*.h
    ${CMAKE_SOURCE_DIR}/reports/*.h ${CMAKE_SOURCE_DIR}/bpf/*.h ${CMAKE_SOURCE_DIR}/tracer/*.h
    ${CMAKE_SOURCE_DIR}/reference_models/plants/*.h ${CMAKE_SOURCE_DIR}/reference_models/load/*.h
    ${CMAKE_SOURCE_DIR}/reference_models/serve/*.h)
if(NOT TARGET upgate_serve)
    list(FILTER headers EXCLUDE REGEX "/reference_models/serve/answer\\.h$") # libmicrohttpd is not here
endif()
# Two parts of upgate_step.h, which are whole only together with it.
list(FILTER headers EXCLUDE REGEX "/contracts/step_(writer|gate)\\.h$")
# Needs Python.h of the interpreter it is built against.
list(FILTER headers EXCLUDE REGEX "/tracer/python/")
# Compiled for the kernel, by clang.
list(FILTER headers EXCLUDE REGEX "/bpf/(kernel|[a-z_]+\\.bpf)\\.h$")
set(sysroot "")
if(CMAKE_SYSROOT)
    set(sysroot --sysroot=${CMAKE_SYSROOT}) # CMake gives it to what it compiles itself
endif()
set(header_flags -fsyntax-only -I${CMAKE_SOURCE_DIR} -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wvla
    -Werror ${SQLITE_CFLAGS} ${JANSSON_CFLAGS} ${YAML_CFLAGS})
add_test(NAME unit.headers COMMAND ${CMAKE_C_COMPILER} ${sysroot} -std=gnu17 -Wstrict-prototypes
    -Wmissing-prototypes ${header_flags} -x c ${headers})
set_tests_properties(unit.headers PROPERTIES LABELS "unit;release" TIMEOUT 300)

find_program(UPGATE_CXX NAMES c++ g++ clang++)
if(UPGATE_CXX)
    file(GLOB contracts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/contracts/*.h)
    # metrics.h is a table with designated array elements, of the tool alone: C only.
    list(FILTER contracts EXCLUDE REGEX "/(metrics|step_writer|step_gate)\\.h$")
    add_test(NAME unit.headers_cxx COMMAND ${UPGATE_CXX} -std=c++17 ${header_flags} -x c++
        ${contracts})
    set_tests_properties(unit.headers_cxx PROPERTIES LABELS "unit;release" TIMEOUT 300)
else()
    message(STATUS "unit test headers_cxx is off: no C++ compiler")
endif()
