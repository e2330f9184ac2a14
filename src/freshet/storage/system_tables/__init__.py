"""What a table says of itself, as tables: `orders$snapshots`, `orders$files` and the others."""
