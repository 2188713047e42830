// SPDX-License-Identifier: Apache-2.0
// How a workload says that it cannot be run where it is: a framework without that path, a missing
// device. It writes one line "skipped: REASON" and ends with this status before its first step.
// Neither a crash nor a pass: the verdict names the reason, and nothing is claimed of the workload.
#ifndef UPGATE_CONTRACTS_SKIPPED_H
#define UPGATE_CONTRACTS_SKIPPED_H

#define UG_SKIPPED_STATUS 77 // as automake's and CTest's tests have it
#define UG_SKIPPED_WORD "skipped: "

#endif
