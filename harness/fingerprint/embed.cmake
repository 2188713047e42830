# cmake -DSOURCE=fingerprint.py -DTARGET=probe_source.h -P embed.cmake: the text as a C array, one row
# a line of the text, so that the program needs no file beside it.
file(READ ${SOURCE} text HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${text}")
string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
file(WRITE ${TARGET} "// Made from ${SOURCE} by embed.cmake.\n"
    "static const char probe_source[] = {\n${bytes}0x00};\n")
