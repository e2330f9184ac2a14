-- What a pipeline that reads the database itself needs: keys, by which rows are copied, and a publication.
ALTER TABLE visits ADD PRIMARY KEY (visitor, page);
ALTER TABLE events ADD COLUMN number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;
CREATE PUBLICATION freshet_shop FOR ALL TABLES;
