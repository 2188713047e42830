-- SPDX-License-Identifier: Apache-2.0
-- Names and texts that would be markup, commands or control sequences where they are shown.
UPDATE side SET name = 'torch|1.13 <b>`&"''' WHERE id = 0;
UPDATE side SET name = char(27) || '[2J%0A::error::x' WHERE id = 1;
UPDATE run SET plan_path = 'plans/a,b:c%.yaml';
UPDATE workload SET name = '<script>alert(1)</script>|x' WHERE id = 1;
UPDATE workload SET name = '_*[a](http://b)*_ @team #12 ``` ' || char(10) || '## head' WHERE id = 2;
UPDATE workload SET name = ']]>&amp;' || char(1) || char(8238) || 'é 漢字' || CAST(x'ff' AS TEXT) WHERE id = 3;
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, verdict, improved, reason)
SELECT name, 'step_time', 'ns', 'lower', 1, 12304000, 12931000, 1.0514, 1.0462, 1.0563, 0.0025, 10, 0, 0.02, 0.0052, 0.0045, 'fail', 0,
       name || ' is slower: 5 % | <i>' || char(13) || char(10) || '::warning::100%' FROM workload WHERE id <= 3;
INSERT INTO parity (workload, tensor, rule, error_a, error_b, verdict, reason)
SELECT name, '<output>"|', 'rule&<', 1e-7, 1e-3, 'fail', 'a & b < c' FROM workload WHERE id = 1;
UPDATE launch SET state = 'crashed', exit_code = 1, stderr_tail = '```' || char(10) || '::error::injected' || char(10) || '</details><b>' || char(27) || ']0;title' || char(7)
WHERE id = (SELECT max(id) FROM launch);
INSERT INTO finding (workload, kind, side, effect, text) SELECT name, 'crash', 1, 'fail', 'it said </system-err> ]]> &' FROM workload WHERE id = 4;
INSERT INTO note (at_ns, level, text) VALUES (1, 'warning', 'a | b <script> @someone');
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', '<script>alert(1)</script>|x is slower' || char(10) || 'verdict=pass', 'margin_note with | and <b>', '{}', 1, 0, 'none & <none>', 1795263850000000000);
