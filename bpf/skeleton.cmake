# cmake -DBPFTOOL=.. -DOBJECT=.. -DNAME=.. -DHEADER=.. -P skeleton.cmake: the object as a C header. bpftool writes to stdout
# only, and a header that is half written must not stay.
execute_process(COMMAND ${BPFTOOL} gen skeleton ${OBJECT} name ${NAME}
    OUTPUT_FILE ${HEADER}.new RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "bpftool failed to make a skeleton of ${OBJECT}")
endif()
file(RENAME ${HEADER}.new ${HEADER})
