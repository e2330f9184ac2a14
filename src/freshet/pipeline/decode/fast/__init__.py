"""The fast path: records into structs by msgspec, one decode each, and structs into columns by Arrow and numpy."""
