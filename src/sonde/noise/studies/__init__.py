"""Studies with the noise source: the lowest level that is detected, and how steady clean runs are."""
