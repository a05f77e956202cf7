"""io: where the time goes in the parallel I/O stack, without recompiling anything."""
