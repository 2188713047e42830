-- SPDX-License-Identifier: Apache-2.0
-- The certificate of a calibrated host.
INSERT INTO calibration (scope, interleave, made_wall_ns, aa_pairs, gates, false_fails, upper_bound, method, pair_sd, source_run)
VALUES ('host', 'steps', 1795000000000000000, 100, 299, 0, 0.01, 're-split', 0.0043, 'a0b1c2d3-0000-4000-8000-000000000001');
