-- One round of work: inserts, updates, deletes and changes of keys, in transactions. `round` counts from 1.
BEGIN;
INSERT INTO customers (name, email, credit, since)
SELECT 'New ' || :round || '.' || n, NULL, NULLIF(n, 3) * 10 + 0.5, '2026-02-01' FROM generate_series(1, 2) AS n;
UPDATE customers SET credit = credit - 1.01, is_active = NOT is_active WHERE id % 23 = :round % 23;
UPDATE customers SET tags = tags || ('round ' || :round), note = NULL WHERE id % 31 = :round % 31;
DELETE FROM customers WHERE id % 97 = :round % 97;
COMMIT;

BEGIN;
INSERT INTO orders_0
SELECT 10000 + 100 * :round + 2 * n, n, 'placed', n * 0.01, timestamptz '2026-02-01Z' + :round * interval '1 hour'
FROM generate_series(1, 10) AS n;
INSERT INTO orders_1
SELECT 10001 + 100 * :round + 2 * n, n, 'placed', n * 0.01, timestamptz '2026-02-01Z' - :round * interval '1 hour'
FROM generate_series(1, 10) AS n;
INSERT INTO order_lines
SELECT 10000 + 100 * :round + n, line, 'sku-' || n, line, n + 0.01
FROM generate_series(1, 10) AS n, generate_series(1, 2) AS line;
UPDATE orders_0 SET status = 'shipped' WHERE id % 17 = :round % 17;
UPDATE orders_1 SET status = 'packed', total = coalesce(total, 0) + 1 WHERE id % 19 = :round % 19;
DELETE FROM orders_0 WHERE id % 41 = :round % 41;
-- Orders get other numbers.
UPDATE orders_1 SET id = id + 200000 WHERE id < 200000 AND id % 43 = :round % 43;
UPDATE order_lines SET pieces = pieces + 1 WHERE order_id % 29 = :round % 29;
DELETE FROM order_lines WHERE order_id % 37 = :round % 37 AND line = 3;
COMMIT;

BEGIN;
-- Descriptions stay as they are, but for some.
UPDATE products SET weight = weight + 0.1 WHERE get_byte(uuid_send(id), 0) % 7 = :round % 7;
UPDATE products SET description = reverse(description) WHERE get_byte(uuid_send(id), 1) % 23 = :round % 23;
-- Pieces are carried to another warehouse, and back.
UPDATE stock SET warehouse = 'X' || substr(warehouse, 2), counted = counted + interval '1 ms'
WHERE warehouse LIKE 'W%' AND get_byte(uuid_send(product), 2) % 11 = :round % 11;
UPDATE stock SET warehouse = 'W' || substr(warehouse, 2), pieces = pieces - 1
WHERE warehouse LIKE 'X%' AND get_byte(uuid_send(product), 3) % 5 = :round % 5;
COMMIT;

BEGIN;
INSERT INTO payments VALUES (1000 + :round, :round / 8.0, 'CHF', NULL, '{}');
UPDATE payments SET amount = amount * -1.5, parts = NULL WHERE id % 13 = :round % 13;
INSERT INTO events SELECT now() AT TIME ZONE 'UTC', 'round', to_jsonb(:round + n) FROM generate_series(1, 5) AS n;
-- A row that comes, changes and goes within a transaction.
INSERT INTO visits VALUES (0, '/passing', 1, NULL);
UPDATE visits SET times = 2 WHERE visitor = 0;
DELETE FROM visits WHERE visitor = 0;
UPDATE visits SET times = times + 1, last = last + 1 WHERE visitor % 7 = :round % 7;
UPDATE visits SET page = page || '/' || :round WHERE visitor % 17 = :round % 17;
DELETE FROM visits WHERE visitor % 41 = :round;
UPDATE "Odd Näme" SET "Größe" = "Größe" + 0.125, "two words" = NULL WHERE length("select") % 3 = :round % 3;
UPDATE "Odd Näme" SET "select" = 'kéy ' || :round WHERE "select" = 'key ' || :round;
INSERT INTO daily_totals VALUES (date '2026-02-01' + :round, :round, NULL);
UPDATE daily_totals SET total = coalesce(total, 0) + 0.5 WHERE extract(day FROM day) = :round;
UPDATE every_type SET a_bigint = a_bigint + 1, texts = texts || ARRAY['more'] WHERE id = :round % 3 + 1;
COMMIT;
