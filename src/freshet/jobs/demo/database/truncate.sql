BEGIN;
TRUNCATE daily_totals;
INSERT INTO daily_totals SELECT date '2026-01-01' + n, n, n * 2.25 FROM generate_series(1, 20) AS n;
COMMIT;
