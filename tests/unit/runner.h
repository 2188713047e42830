// SPDX-License-Identifier: Apache-2.0
// The unit test runner. TEST(name) { CHECK...; } registers a case; each runs in a forked child, so
// a crash fails one case only. main() comes from runner.c: `test_x [-l] [name…]`. A case that
// returns without any CHECK fails: a test that checks nothing is no test.
#ifndef UPGATE_TESTS_UNIT_RUNNER_H
#define UPGATE_TESTS_UNIT_RUNNER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

void runner_register(const char *name, void (*fn)(void));
void runner_checked(void);
void runner_fail(const char *file, int line, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
char *runner_directory(char *template); // mkdtemp(); it is removed with all that is in it when the
                                        // case ends, unless a signal ends it
void runner_skip(const char *reason) __attribute__((noreturn)); // the case cannot run here

#define TEST(name) \
    static void test_##name(void); \
    __attribute__((constructor)) static void register_##name(void) \
    { \
        runner_register(#name, test_##name); \
    } \
    static void test_##name(void)

#define CHECK(condition) \
    do { \
        runner_checked(); \
        if (!(condition)) \
            runner_fail(__FILE__, __LINE__, "%s is false", #condition); \
    } while (0)

#define CHECK_INT(got, want) \
    do { \
        long long got_ = (long long)(got), want_ = (long long)(want); \
        runner_checked(); \
        if (got_ != want_) \
            runner_fail(__FILE__, __LINE__, "%s: got %lld, expected %lld", #got, got_, want_); \
    } while (0)

#define CHECK_DBL(got, want, tolerance) \
    do { \
        double got_ = (got), want_ = (want); \
        runner_checked(); \
        if (!(fabs(got_ - want_) <= (tolerance))) \
            runner_fail(__FILE__, __LINE__, "%s: got %.17g, expected %.17g", #got, got_, want_); \
    } while (0)

#define CHECK_STR(got, want) \
    do { \
        const char *got_ = (got), *want_ = (want); \
        runner_checked(); \
        if (!got_ || strcmp(got_, want_)) \
            runner_fail(__FILE__, __LINE__, "%s: got \"%s\", expected \"%s\"", #got, \
                    got_ ? got_ : "(null)", want_); \
    } while (0)

#define CHECK_CONTAINS(got, part) \
    do { \
        const char *got_ = (got), *part_ = (part); \
        runner_checked(); \
        if (!got_ || !strstr(got_, part_)) \
            runner_fail(__FILE__, __LINE__, "%s: \"%s\" does not contain \"%s\"", #got, \
                    got_ ? got_ : "(null)", part_); \
    } while (0)

#endif
