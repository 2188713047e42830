// SPDX-License-Identifier: Apache-2.0
// In place of the rest of the library: kinds that the test sets, and a spool that keeps the records
// in an array.
#ifndef UPGATE_TESTS_MOCK_NCCL_RIG_H
#define UPGATE_TESTS_MOCK_NCCL_RIG_H

#include <stdint.h>

#include "contracts/spool.h"

// As the control thread does: on, then the plugin is told; or it is told first, then off.
void rig_kinds(uint32_t kinds);
uint32_t rig_count(void);
const struct ug_rec_nccl *rig_record(uint32_t index); // in the order in which they were written
const char *rig_text(uint32_t id);                    // "": 0
struct ug_spool_header *rig_header(void);
void rig_clear(void);      // forgets records and texts
uint32_t rig_starts(void); // how often the library was asked to start

#endif
