CREATE TABLE refunds (
    order_id bigint,
    at timestamptz,
    amount numeric(10, 2) NOT NULL,
    reason text,
    PRIMARY KEY (order_id, at)
);
INSERT INTO refunds
SELECT id, placed, total, 'reason ' || id % 5 FROM orders_0 WHERE id % 5 = 0 AND total IS NOT NULL;
UPDATE refunds SET amount = amount / 2 WHERE order_id % 10 = 0;
