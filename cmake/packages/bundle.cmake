# Makes an installed tree run where only glibc is: each library that its programs need, glibc's apart, is copied to
# lib/upgate/bundled with the licences of its package, and every program and library gets a path to them that is relative to
# itself. DT_RPATH, not DT_RUNPATH: another libcurl in LD_LIBRARY_PATH, as environment modules put it there, changes nothing.
# Also `cmake -DTREE=… -P cmake/packages/bundle.cmake`. Of a cross build the libraries lie below SYSROOT, and OBJDUMP reads them.
cmake_minimum_required(VERSION 3.25)

set(packages_glibc "^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util)\\.so)")

# The ELF files of `tree`.
function(packages_elf tree ret_files)
    file(GLOB_RECURSE files ${tree}/bin/* ${tree}/lib/upgate/*)
    set(found "")
    foreach(file ${files})
        file(READ ${file} magic LIMIT 4 HEX)
        if(magic STREQUAL "7f454c46")
            list(APPEND found ${file})
        endif()
    endforeach()
    set(${ret_files} ${found} PARENT_SCOPE)
endfunction()

# What the package of a library says of its licence. By the file's name alone: Debian has some in /lib, which is a link, and those
# of another architecture in a folder of their own; the packages are called the same.
function(packages_licence library directory)
    file(REAL_PATH ${library} real)
    get_filename_component(name ${real} NAME)
    execute_process(COMMAND dpkg-query -S "*-linux-gnu/${name}" OUTPUT_VARIABLE owner ERROR_QUIET)
    string(REGEX MATCH "^[^:\n]+" package "${owner}")
    if(NOT package OR NOT EXISTS ${SYSROOT}/usr/share/doc/${package}/copyright)
        message(WARNING "no licence is known of '${real}': add it to ${directory} before passing this on")
        return()
    endif()
    file(REAL_PATH ${SYSROOT}/usr/share/doc/${package}/copyright copyright)
    file(COPY_FILE ${copyright} ${directory}/${package})
endfunction()

function(packages_bundle tree)
    find_program(patchelf patchelf REQUIRED)
    if(SYSROOT)
        set(CMAKE_GET_RUNTIME_DEPENDENCIES_PLATFORM linux+elf)
        set(CMAKE_GET_RUNTIME_DEPENDENCIES_TOOL objdump)
        set(CMAKE_GET_RUNTIME_DEPENDENCIES_COMMAND ${OBJDUMP})
        file(GLOB places ${SYSROOT}/usr/lib/*-linux-gnu)
        set(places DIRECTORIES ${places})
    else()
        set(places "")
    endif()
    packages_elf(${tree} programs)
    set(bundled ${tree}/lib/upgate/bundled)
    file(MAKE_DIRECTORY ${bundled}/licences)
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} PRE_EXCLUDE_REGEXES ${packages_glibc} ${places}
        RESOLVED_DEPENDENCIES_VAR libraries)
    foreach(library ${libraries})
        get_filename_component(name ${library} NAME)
        file(REAL_PATH ${library} real)
        file(COPY_FILE ${real} ${bundled}/${name})
        execute_process(COMMAND ${patchelf} --force-rpath --set-rpath "\$ORIGIN" ${bundled}/${name} COMMAND_ERROR_IS_FATAL ANY)
        packages_licence(${library} ${bundled}/licences)
    endforeach()
    foreach(program ${programs})
        file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} PRE_EXCLUDE_REGEXES ${packages_glibc} ${places}
            RESOLVED_DEPENDENCIES_VAR needed)
        if(needed)
            get_filename_component(folder ${program} DIRECTORY)
            file(RELATIVE_PATH way ${folder} ${bundled})
            execute_process(COMMAND ${patchelf} --force-rpath --set-rpath "\$ORIGIN/${way}" ${program} COMMAND_ERROR_IS_FATAL ANY)
        endif()
    endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
    packages_bundle(${TREE})
endif()
