"""JSON: records as structs by msgspec, one decode each, and structs as columns by Arrow and numpy."""
