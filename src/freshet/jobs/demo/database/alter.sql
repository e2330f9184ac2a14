-- Columns are added, one with a default that no record of an existing row tells of; others become wider.
BEGIN;
ALTER TABLE customers ADD COLUMN tier text NOT NULL DEFAULT 'basic', ADD COLUMN points integer;
UPDATE customers SET tier = 'gold', points = 100 WHERE id % 10 = 0;
ALTER TABLE order_lines ALTER COLUMN pieces TYPE integer, ALTER COLUMN price TYPE numeric(12, 2);
UPDATE order_lines SET pieces = 70000, price = 1234567890.12 WHERE order_id % 50 = 0;
COMMIT;
