"""Conversions: JSON values into the carriers of declared types, one by one and by the column."""
