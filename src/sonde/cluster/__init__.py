"""Nodes on one machine: network namespaces on a bridge, for tests and studies of what runs in parallel."""

from sonde.cluster.run import Cluster

__all__ = ["Cluster"]
