-- A transaction that comes last, of a table that no pipeline takes.
INSERT INTO ops.signals VALUES ('end', 'end', NULL);
