// SPDX-License-Identifier: Apache-2.0
// Which layout of the table belongs to a CUPTI that says CUPTI_API_VERSION.
#include "tracer/inject/decode/layout.h"

#include "tracer/inject/decode/decode.h"

// Up to 12.9 a running number, from 13.0 major * 10,000 + minor * 100 + update: updates keep the
// structures.
static uint32_t release_of(uint32_t api_version)
{
    return api_version >= 10000 ? api_version / 100 * 100 : api_version;
}

const struct cupti_layout *cupti_layout_find(uint32_t api_version, int *ret_exact)
{
    const struct cupti_layout *found = NULL;
    for (size_t i = 0; i < layout_table_count; i++)
        if (release_of(layout_table[i].api_version) <= release_of(api_version))
            found = &layout_table[i];
    if (found)
        *ret_exact = release_of(found->api_version) == release_of(api_version);
    return found;
}

const struct cupti_layout *cupti_layout_11_8(void)
{
    return &layout_table[0];
}
