// SPDX-License-Identifier: Apache-2.0
// Children of the target where the kernel side does not tell of them (no permission for BPF): asked
// of /proc.
#ifndef UPGATE_TRACER_RECORD_CHILDREN_H
#define UPGATE_TRACER_RECORD_CHILDREN_H

#include "tracer/record/tasks.h"

// Makes the children of every process of the target, and theirs, processes of the target. About 10
// us a thread of the target.
void children_search(struct tasks *tasks);

#endif
