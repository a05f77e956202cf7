"""The bars of `sonde noise`."""
