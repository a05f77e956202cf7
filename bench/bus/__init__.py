"""The bus beside the DDS it stands on, bare sockets, ddsperf, and what is asked of it in numbers."""
