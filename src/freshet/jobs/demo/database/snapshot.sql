-- Has Debezium send the rows of the customers once more, while their changes go on.
INSERT INTO ops.signals
VALUES ('customers', 'execute-snapshot', '{"type": "incremental", "data-collections": ["public.customers"]}');
