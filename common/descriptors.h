// SPDX-License-Identifier: Apache-2.0
// Descriptors of this process.
#ifndef UPGATE_COMMON_DESCRIPTORS_H
#define UPGATE_COMMON_DESCRIPTORS_H

// Closes all from first on. System calls only: safe in a fork of a process with threads.
void descriptors_close_from(int first);

#endif
