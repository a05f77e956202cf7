"""Traces being taken: programs started or attached to, uprobes, the kernel's part, counters of servers."""
