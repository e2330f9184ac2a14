"""The demo: a shop's change stream from a real broker into tables that Apache Paimon reads."""
