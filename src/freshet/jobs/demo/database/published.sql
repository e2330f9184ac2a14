-- What a pipeline that reads the database itself needs: whole rows in the log of a table without a key, and a publication.
ALTER TABLE events REPLICA IDENTITY FULL;
CREATE PUBLICATION freshet_shop FOR ALL TABLES;
