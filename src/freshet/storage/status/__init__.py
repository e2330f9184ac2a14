"""What an operator asks of a table: one frozen value of a moment, which everything that shows tables renders."""
