"""How long commands that have a --budget take."""
