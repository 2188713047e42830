// SPDX-License-Identifier: Apache-2.0
// The data document of the HTML report, upgate.report/1 (html/page/DATA.md). Internal to this room.
#ifndef UPGATE_REPORTS_HTML_DOCUMENT_H
#define UPGATE_REPORTS_HTML_DOCUMENT_H

#include "reports/render/html/html_parts.h"

// What tables, flame graphs and timelines may take together, about; cut: less than they would,
// which the document says.
struct html_limits {
    size_t bytes;
    bool cut;
};

// A new reference; NULL with *err set. err is not NULL.
json_t *html_document(struct store *store, const struct html_limits *limits, struct error *err);

#endif
