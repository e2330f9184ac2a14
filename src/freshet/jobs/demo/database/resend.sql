-- No change tells of the default that rows which were there got with a new column: an update sends them whole.
UPDATE customers SET tier = tier;
