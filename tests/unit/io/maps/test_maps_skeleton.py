"""A map to begin with."""

from __future__ import annotations

import pytest

from sonde.io.maps.layers import parse
from sonde.io.maps.skeleton import kind_of, skeleton


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llapi_file_open", "open"), ("llapi_layout_alloc", "other"), ("daos_array_write", "write"),
        ("PVFS_sys_readdir", "read"), ("glfs_pwritev", "write"), ("glfs_fsync", "sync"), ("x_put_all", "write"),
        ("H5Dclose", "close"), ("ceph_ll_lookup", "meta"), ("rados_aio_wait_for_complete", "wait"), ("budget", "other"),
    ],
)  # fmt: skip
def test_kinds_by_name(name, kind):
    assert kind_of(name) == kind


def test_it_is_a_map_that_names_every_function_once():
    names = ["x_open", "x_write", "x_writev", "x_info", "x_close"]
    layer = parse(skeleton("x", "libx.so.2.1", names), "new")
    assert sorted(name for function in layer.functions for name in function.names) == sorted(names)
    assert {function.libraries for function in layer.functions} == {("libx.so*",)}
    assert {function.kind for function in layer.functions} == {"open", "write", "close", "other"}
