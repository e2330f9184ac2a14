"""Many tables of one source in one query (`sync` of a pipeline file)."""
