"""`make bench-io`: what tracing costs, and whether what it tells is right."""
