"""The parts that all roles of a power stack share: configuration, telemetry, bus, state, roles."""
