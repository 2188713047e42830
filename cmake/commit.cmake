# Which commit the program is built from: a header for harness/verbs/version.c, written anew only when that has changed.
# Runs in every build, `cmake -DSOURCE=… -DOUTPUT=… -P cmake/commit.cmake`. Asks git in a checkout, also one that belongs to
# somebody else; in an unpacked `git archive` reads commit.txt, which git has filled in. Neither: the header says so.
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(date "")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git) # of this tree, not of one that it was unpacked in
    execute_process(COMMAND ${git} -c safe.directory=${SOURCE} -C ${SOURCE} log -1 --format=%H\ %cs
        OUTPUT_VARIABLE told OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    # --untracked-files=no: what a build or a user left beside the sources is in no program.
    execute_process(COMMAND ${git} -c safe.directory=${SOURCE} -C ${SOURCE} --no-optional-locks status --porcelain --untracked-files=no
        OUTPUT_VARIABLE changed ERROR_QUIET)
else()
    file(READ ${SOURCE}/cmake/commit.txt told)
    set(changed "")
endif()
if(told MATCHES "^([0-9a-f]+) ([0-9-]+)")
    set(date ${CMAKE_MATCH_2})
    string(SUBSTRING ${CMAKE_MATCH_1} 0 12 commit)
    if(changed)
        string(APPEND commit "-dirty")
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// Made by cmake/commit.cmake.
#define UPGATE_COMMIT \"@commit@\" // empty: not known
#define UPGATE_COMMIT_DATE \"@date@\"
" @ONLY)
