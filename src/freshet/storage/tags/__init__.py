"""Tags as people and commits manage them: made, replaced, renamed, and removed with the files that only they name."""
