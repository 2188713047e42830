# What every room shares: warnings, sanitizers, the library helper, the summary at the end.

# Assertions stay on in every build: a wrong verdict costs more than their time.
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

# What the program finds from its own place, ../lib/upgate: not lib64 or lib/TRIPLET, which other systems say.
set(UPGATE_LIBDIR lib/upgate)

# Of everything in C: by the target upgate_flags, and by what foreign programs load, which takes no sanitizers.
set(upgate_c_options -std=gnu17 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
    -Wno-format-nonliteral -Wno-format-truncation -fno-strict-aliasing
    "$<$<C_COMPILER_ID:Clang>:-Wno-unknown-warning-option;-Wno-gnu-variable-sized-type-not-at-end>" $<$<BOOL:${UPGATE_WERROR}>:-Werror>)
add_library(upgate_flags INTERFACE)
target_compile_options(upgate_flags INTERFACE ${upgate_c_options})
target_compile_definitions(upgate_flags INTERFACE _GNU_SOURCE UPGATE_VERSION="${PROJECT_VERSION}")
target_include_directories(upgate_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(UPGATE_SANITIZE)
    # -O1, as ASan's authors advise: at -O0 what only computes takes twice as long. -g1, lines for a report: 125 s to
    # build unit_tests on two cores, 148 with -g.
    # A target with the property UNSANITIZED is not under test.
    # The preset asan names float-cast-overflow, which gcc's `undefined` leaves out.
    set(sanitized $<NOT:$<BOOL:$<TARGET_PROPERTY:UNSANITIZED>>>)
    target_compile_options(upgate_flags INTERFACE -fno-omit-frame-pointer
        "$<${sanitized}:-fsanitize=${UPGATE_SANITIZE};-fno-sanitize-recover=all;-g1>" $<$<AND:${sanitized},$<CONFIG:Debug>>:-O1>)
    target_link_options(upgate_flags INTERFACE -fsanitize=${UPGATE_SANITIZE})
endif()

# upgate_library(NAME SOURCES a.c b.c LIBS x y): a static library of one room.
function(upgate_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
    add_library(${name} STATIC ${arg_SOURCES})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${name} PUBLIC upgate_flags ${arg_LIBS})
endfunction()

# upgate_part(NAME ON|OFF TEXT): a line of the configure summary.
set_property(GLOBAL PROPERTY UPGATE_PARTS "")
function(upgate_part name state text)
    set_property(GLOBAL APPEND_STRING PROPERTY UPGATE_PARTS "    ${name}: ${state}  ${text}\n")
endfunction()
function(upgate_print_summary)
    get_property(parts GLOBAL PROPERTY UPGATE_PARTS)
    message(STATUS "upgate ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}"
        " sanitizers: ${UPGATE_SANITIZE}\n${parts}")
endfunction()
