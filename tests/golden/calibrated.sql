-- SPDX-License-Identifier: Apache-2.0
-- Certificates that cover the cells, of an A/A run on this host.
INSERT INTO control (scope, kind, interleave, metric, margin, objection, made_wall_ns, aa_pairs, aa_lower, aa_upper, mde, pair_sd,
    held, planted, held_pairs, held_lower, held_upper, gates, false_fails, upper_bound, source_run)
VALUES ('host', 'train model', 'steps', 'step_time', 0.02, NULL, 1795000000000000000, 14, -0.0021, 0.0019, 0.0058, 0.0043,
        0.02, 0.0198026, 14, 0.0171, 0.0224, 12, 0, 0.2209, 'a0b1c2d3-0000-4000-8000-000000000001'),
       ('host', 'train model', 'steps', 'peak_memory', 0.01, NULL, 1795000000000000000, 14, -0.0004, 0.0005, 0.0011, 0.0009,
        NULL, 0, 14, -0.0003, 0.0004, 12, 0, 0.2209, 'a0b1c2d3-0000-4000-8000-000000000001');
