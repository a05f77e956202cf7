"""Interruptions of each core, measured without MPI."""
