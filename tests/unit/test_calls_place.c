// SPDX-License-Identifier: Apache-2.0
// Where a breakpoint costs least: at an instruction that the kernel emulates, as far as the way
// there is sure.
#include "tests/unit/runner.h"
#include "tracer/calls/place.h"

#if defined(__x86_64__)

static size_t place(const char *bytes, size_t len, bool entry)
{
    uint8_t code[PLACE_BYTES] = {0};
    memcpy(code, bytes, len);
    return place_cheap(code, len, entry);
}

#define PLACE(bytes, entry) place(bytes, sizeof(bytes) - 1, entry)

TEST(a_push_is_where_it_is)
{
    CHECK_INT(PLACE("\x55\x48\x89\xe5", true), 0);
    CHECK_INT(PLACE("\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", true), 4);         // endbr64; push
    CHECK_INT(PLACE("\xf3\x0f\x1e\xfa\x41\x57\x41\x56", true), 4);         // push %r15
    CHECK_INT(PLACE("\x48\x8d\x05\x01\x02\x03\x04\x89\xf8\x53", true), 9); // lea, mov, push
}

TEST(a_branch_behind_a_return)
{
    CHECK_INT(PLACE("\x39\xd9\x75\xf2", false), 2);                     // cmp; jne
    CHECK_INT(PLACE("\x85\xc0\x0f\x84\x10\x00\x00\x00", false), 2);     // test; je
    CHECK_INT(PLACE("\xf2\x0f\x11\x44\x24\x08\xeb\xde", false), 6);     // movsd; jmp
    CHECK_INT(PLACE("\x48\x83\xc3\x08\xe8\x01\x00\x00\x00", false), 4); // add $8,%rbx; call
    CHECK_INT(PLACE("\xc5\xfb\x10\x05\x01\x02\x03\x04\x90", false), 8); // vmovsd; nop
}

TEST(a_branch_at_the_begin_of_a_function_may_be_that_of_a_loop)
{
    CHECK_INT(PLACE("\x85\xff\x7e\x22\x55", true), 0);
}

TEST(what_writes_the_stack_pointer_ends_the_walk)
{
    CHECK_INT(PLACE("\x48\x83\xec\x18\x55", true), 0);             // sub $24,%rsp; push
    CHECK_INT(PLACE("\x48\x8d\x64\x24\xf0\x55", true), 0);         // lea -16(%rsp),%rsp
    CHECK_INT(PLACE("\x48\x89\xc4\x55", true), 0);                 // mov %rax,%rsp
    CHECK_INT(PLACE("\x48\x8b\x24\x24\x55", true), 0);             // mov (%rsp),%rsp
    CHECK_INT(PLACE("\x49\x89\xe2\x55", true), 3);                 // mov %rsp,%r10: only read
    CHECK_INT(PLACE("\x48\x83\xe4\xe0\x41\xff\x72\xf8", true), 0); // and $-32,%rsp
    CHECK_INT(PLACE("\x5b\xeb\x10", false), 0);                    // pop
}

TEST(what_goes_elsewhere_or_is_not_known_ends_the_walk)
{
    CHECK_INT(PLACE("\xc3\x90\x90", false), 0); // ret
    CHECK_INT(PLACE("\xff\xd0\x90", false), 0); // call *%rax
    CHECK_INT(PLACE("\x0f\x05\x90", false), 0); // syscall
    // a 16-bit call: the kernel does not know it
    CHECK_INT(PLACE("\x66\xe8\x01\x02\x90\x90", false), 0);
    CHECK_INT(PLACE("\x06\x55", true), 0);             // no instruction
    CHECK_INT(PLACE("\xf0\x0f\xc1\x07\x55", true), 0); // lock: rare enough
}

TEST(code_that_is_cut_off)
{
    CHECK_INT(PLACE("", true), 0);
    CHECK_INT(PLACE("\x48", true), 0);
    CHECK_INT(PLACE("\x48\x8b", false), 0);
    CHECK_INT(PLACE("\x48\x8b\x84", false), 0);
    CHECK_INT(PLACE("\x89\xf8\xe8", false), 0);
    for (unsigned first = 0; first < 256; first++) // whatever it is: within the bytes
        for (unsigned second = 0; second < 256; second++) {
            const uint8_t code[] = {(uint8_t)first, (uint8_t)second, 0xc4, 0x62, 0x0f};
            for (size_t len = 0; len <= sizeof code; len++)
                if (place_cheap(code, len, len & 1) > len)
                    CHECK(!"beyond the code");
        }
}

#else

TEST(nothing_is_better_here)
{
    const uint8_t code[] = {0x55, 0x55};
    CHECK_INT(place_cheap(code, sizeof code, true), 0);
}

#endif
