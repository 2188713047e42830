# What Debian wants of an installed tree: a copyright, a change log, packed manual pages, zsh's completion where its zsh looks.
function(packages_debian prefix)
    set(doc ${prefix}/share/doc/upgate)
    file(REMOVE ${doc}/LICENSE) # common-licenses has it
    file(COPY_FILE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/debian.copyright ${doc}/copyright)

    file(READ ${CPACK_UPGATE_COMMIT_HEADER} header)
    string(REGEX MATCH "COMMIT \"([^\"]*)\"" found "${header}")
    set(commit "${CMAKE_MATCH_1}")
    if(NOT commit)
        set(commit unknown)
    endif()
    string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, if that is set
    file(WRITE ${doc}/changelog.Debian "upgate (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Commit ${commit}.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
    file(GLOB packed ${doc}/changelog.Debian ${prefix}/share/man/man1/*.1)
    execute_process(COMMAND gzip -9nf ${packed} COMMAND_ERROR_IS_FATAL ANY)

    file(MAKE_DIRECTORY ${prefix}/share/zsh/vendor-completions ${prefix}/share/lintian/overrides)
    file(RENAME ${prefix}/share/zsh/site-functions/_upgate ${prefix}/share/zsh/vendor-completions/_upgate)
    file(REMOVE ${prefix}/share/zsh/site-functions)
    file(COPY_FILE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/debian.overrides ${prefix}/share/lintian/overrides/upgate)
endfunction()
