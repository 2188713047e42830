// SPDX-License-Identifier: Apache-2.0
// Least privilege of `upgate record`: once the capture is attached, what only attaching needs is given up for good.
#ifndef UPGATE_HARNESS_RECORD_PRIVILEGES_H
#define UPGATE_HARNESS_RECORD_PRIVILEGES_H

// The calling thread, which must be the only one, keeps the capabilities that reading a target takes, and can never gain
// others. Where that fails nothing is given up, which a warning says.
void privileges_drop(void);

#endif
