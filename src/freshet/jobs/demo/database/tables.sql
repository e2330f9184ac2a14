-- Twelve tables of a shop, each of another shape, and their first rows.
CREATE TYPE order_status AS ENUM ('placed', 'paid', 'packed', 'shipped');

-- Gets columns while the demo runs, and an incremental snapshot.
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    email varchar(80),
    credit numeric(12, 2) NOT NULL DEFAULT 100,
    since date,
    is_active boolean NOT NULL DEFAULT true,
    tags text[],
    profile jsonb,
    note text DEFAULT 'none'
);
-- Two shards that become one table.
CREATE TABLE orders_0 (
    id bigint PRIMARY KEY,
    customer bigint NOT NULL,
    status order_status NOT NULL,
    total numeric(14, 2),
    placed timestamptz NOT NULL
);
CREATE TABLE orders_1 (LIKE orders_0 INCLUDING ALL);
-- A key of two columns; columns become wider while the demo runs.
CREATE TABLE order_lines (
    order_id bigint,
    line smallint,
    sku varchar(20) NOT NULL,
    pieces smallint NOT NULL,
    price numeric(8, 2),
    PRIMARY KEY (order_id, line)
);
-- Descriptions lie out of line: an update that leaves one as it is does not send it.
CREATE TABLE products (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    weight real,
    volume double precision,
    picture bytea,
    attributes json,
    description text
);
-- Its rows change their keys.
CREATE TABLE stock (
    warehouse char(4),
    product uuid,
    pieces integer NOT NULL,
    counted timestamp(3),
    PRIMARY KEY (warehouse, product)
);
CREATE TABLE payments (
    id bigint PRIMARY KEY,
    amount numeric NOT NULL,
    currency char(3) NOT NULL,
    paid timestamptz,
    parts numeric(10, 2)[]
);
-- No key: rows are only added.
CREATE TABLE events (
    at timestamp NOT NULL,
    kind text NOT NULL,
    payload jsonb
);
-- No key in PostgreSQL; the connector's message.key.columns names one, and the whole row before comes with each change.
CREATE TABLE visits (
    visitor integer NOT NULL,
    page text NOT NULL,
    times integer NOT NULL,
    last date
);
ALTER TABLE visits REPLICA IDENTITY FULL;
CREATE TABLE "Odd Näme" (
    "select" text PRIMARY KEY,
    "Größe" numeric(6, 3),
    "two words" integer
);
-- Is truncated while the demo runs.
CREATE TABLE daily_totals (
    day date PRIMARY KEY,
    orders integer NOT NULL,
    total numeric(14, 2)
);
CREATE TABLE every_type (
    id smallint PRIMARY KEY,
    a_smallint smallint, an_integer integer, a_bigint bigint, a_numeric numeric(38, 10), a_free_numeric numeric,
    a_money money, a_real real, a_double double precision, a_boolean boolean,
    a_text text, a_char char(5), a_varchar varchar(10), a_bytea bytea,
    a_date date, a_time time(3), a_timestamp timestamp, a_timestamp_3 timestamp(3),
    a_timestamptz timestamptz, an_interval interval,
    a_uuid uuid, a_json json, a_jsonb jsonb, an_enum order_status, a_bit bit, bits bit(8),
    an_inet inet, a_cidr cidr, a_macaddr macaddr, a_range int4range, a_tsvector tsvector,
    integers integer[], texts text[], numerics numeric(10, 2)[], dates date[], timestamps timestamp[],
    moments timestamptz[], uuids uuid[], booleans boolean[], jsons jsonb[], times time(3)[]
);

-- Debezium reads what it is asked to do from this table.
CREATE SCHEMA ops;
CREATE TABLE ops.signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048));

INSERT INTO customers (name, email, credit, since, is_active, tags, profile, note)
SELECT 'Customer ' || n, CASE WHEN n % 5 > 0 THEN 'c' || n || '@example.org' END, n * 1.25, date '2015-01-01' + n * 3,
    n % 4 > 0, CASE WHEN n % 3 > 0 THEN ARRAY['tag ' || n % 7, NULL, 'ü'] END,
    jsonb_build_object('height', n % 50 + 150, 'likes', ARRAY['tea', 'coffee']), nullif('note ' || n % 6, 'note 0')
FROM generate_series(1, 300) AS n;
INSERT INTO orders_0
SELECT 2 * n, n % 300 + 1, 'placed', n * 9.99, timestamptz '2026-01-01 08:00+01' + n * interval '61.000001 seconds'
FROM generate_series(1, 200) AS n;
INSERT INTO orders_1
SELECT 2 * n + 1, n % 300 + 1, 'paid', NULL, timestamptz '2026-01-01 08:00+01' + n * interval '59.999999 seconds'
FROM generate_series(1, 200) AS n;
INSERT INTO order_lines
SELECT order_id, line, 'sku-' || (order_id * line) % 90, line * 2, (order_id * line) % 1000 + 0.99
FROM generate_series(2, 300) AS order_id, generate_series(1, 3) AS line;
INSERT INTO products
SELECT md5(n::text)::uuid, 'Product ' || n, n / 10.0, n / 3.0, decode(repeat(md5(n::text), 4), 'hex'),
    json_build_object('colour', 'red', 'sizes', ARRAY[n, n + 1]),
    CASE WHEN n % 2 = 0 THEN (SELECT string_agg(md5(n::text || part::text), '') FROM generate_series(1, 300) AS part) END
FROM generate_series(1, 60) AS n;
INSERT INTO stock
SELECT 'W' || house, md5(n::text)::uuid, n * house, timestamp '2026-01-01 06:30:00.125' + n * interval '1 minute'
FROM generate_series(1, 60) AS n, generate_series(1, 3) AS house;
INSERT INTO payments
SELECT n, n * 1.000000001, 'EUR', timestamptz '2026-01-02 12:00Z' + n * interval '1 second', ARRAY[n, n * 0.25]
FROM generate_series(1, 150) AS n;
INSERT INTO events
SELECT timestamp '2026-01-01' + n * interval '1.5 seconds', 'opened', jsonb_build_object('n', n)
FROM generate_series(1, 200) AS n;
INSERT INTO visits
SELECT visitor, '/page/' || page, 1, date '2026-01-01'
FROM generate_series(1, 40) AS visitor, generate_series(1, 4) AS page;
INSERT INTO "Odd Näme" SELECT 'key ' || n, n / 8.0, n FROM generate_series(1, 30) AS n;
INSERT INTO daily_totals SELECT date '2025-11-01' + n, n, n * 100.5 FROM generate_series(1, 60) AS n;
INSERT INTO every_type VALUES
    (1, -32768, 2147483647, -9223372036854775808, 1234567890123456789012345678.0123456789, 12.000000000000000001,
     12.34, 0.1, 0.1, true,
     'grüße', 'ab', 'abc', '\x00ff10',
     '2024-02-29', '12:34:56.789', '2024-02-29 12:34:56.789012', '1969-12-31 23:59:59.999',
     '2024-02-29 12:34:56.789012+02', '3 days 04:05:06.789',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"b":  1, "a": null}', '{"b": 1, "a": [1, 2.50]}', 'packed', B'1',
     B'10000001',
     '192.168.1.5/24', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5)', 'a fat cat',
     '{1,NULL,3}', '{a,"b c",NULL,""}', '{1.50,-2}', '{2024-02-29}', '{2024-01-01 00:00:00.000001}',
     '{2024-01-01 00:00+02}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{t,f}', ARRAY['{"a": 1}'::jsonb], '{00:00:00.5,23:59:59.999}'),
    (2, 0, 0, 0, 0, 0,
     0, 1e30, 1e300, false,
     '', '', '', '',
     '0001-01-01', '00:00', '0001-01-01 00:00', '9999-12-31 23:59:59.999',
     '0001-01-01 00:00Z', '0',
     '00000000-0000-0000-0000-000000000000', 'null', '"x"', 'placed', B'0',
     B'01111111',
     '::1/64', '::/0', 'ff:ff:ff:ff:ff:ff', 'empty', '',
     '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
-- All else is NULL.
INSERT INTO every_type (id, a_smallint, an_integer, a_bigint, a_numeric, a_free_numeric, a_money, a_real, a_double)
VALUES (3, 1, 1, 1, -0.0000000001, -99999999999999999999.5, -0.01, 'NaN', '-Infinity');
