// SPDX-License-Identifier: Apache-2.0
// Facts about an ELF file that stay the same when it is copied or renamed. Reads with plain reads,
// no mapping: a file that shrinks meanwhile gives an error instead of SIGBUS.
#ifndef UPGATE_FINGERPRINT_ELF_FILE_H
#define UPGATE_FINGERPRINT_ELF_FILE_H

#include <stdint.h>

#include "common/error.h"

struct elf_facts {
    char *build_id; // lower-case hex of the NT_GNU_BUILD_ID note; NULL: the file has none
    char *soname;   // DT_SONAME; NULL
    char *compiler; // first line of .comment, e.g. "GCC: (Debian 12.2.0-14) 12.2.0"; NULL
    char *version;  // found behind the wanted prefix; NULL
    uint64_t size_bytes;
};

// Read the file open at fd. `prefix`, if not NULL, is searched in the file's constants; the word of
// digits, letters, dots and dashes behind it that starts with a digit becomes `version`. "@GOMP_"
// asks for the symbol versions that the library defines instead, the highest: "GOMP_5.0.1". 0, or
// -ENOEXEC: not an ELF file (size_bytes is set), -EBADMSG: damaged or cut off (what could be read
// is set), -ENOSYS: built without libelf. Free with elf_facts_clear in every case.
int elf_facts_read(int fd, const char *prefix, struct elf_facts *ret_facts, struct error *err);
void elf_facts_clear(struct elf_facts *facts);

#endif
