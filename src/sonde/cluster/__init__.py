"""Nodes on one machine: network namespaces on a bridge, for tests and studies of parallel programs."""

from sonde.cluster.run import Cluster

__all__ = ["Cluster"]
