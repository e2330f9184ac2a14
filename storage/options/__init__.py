"""Options of tables: their keys, values, and which of them are supported."""
