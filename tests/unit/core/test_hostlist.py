"""The Python face of native host lists. tests/native/core/test_hostlist.cpp goes deeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import UsageError
from sonde.core.hostlist import check, expand, fold, listed

NAMES = st.lists(st.from_regex(r"[a-z]{0,2}-?[0-9]{1,4}(\.c[0-9])?", fullmatch=True), max_size=30)


def test_expand_and_fold():
    assert expand("n[001-003,020],login1") == ["n001", "n002", "n003", "n020", "login1"]
    assert fold(["n001", "n002", "n003", "n020", "login1"]) == "n[001-003,020],login1"
    assert fold([]) == ""
    assert fold(name for name in ("n1", "n2")) == "n[1-2]"


def test_exclusions_are_taken_from_the_hosts_there_are():
    assert expand("^n2", ["n1", "n2", "n3"]) == ["n1", "n3"]
    assert check("^n2") == "^n2"
    with pytest.raises(UsageError, match="only leaves hosts out") as caught:
        expand("^n2")
    assert caught.value.hint == "name the hosts as well, e.g. n[01-16],^n2"


@pytest.mark.parametrize("text", ["", "n[", "n[1-1000000000]", "n[3-1]", "a,,b", "a b", "ü"])
def test_what_is_no_host_list_is_a_usage_error(text):
    for call in (expand, check):
        with pytest.raises(UsageError) as caught:
            call(text)
        assert caught.value.code == "core.bad_hosts"


def test_a_name_that_no_host_has_is_not_folded():
    with pytest.raises(UsageError, match="'a,b' is not a host name"):
        fold(["n1", "a,b"])


@given(NAMES)
def test_folding_loses_nothing(names):
    unique = list(dict.fromkeys(names))
    assert (expand(fold(names)) if names else []) == unique


@given(st.text(alphabet="n1239[],-^ é\x00", max_size=40))
def test_any_text_is_expanded_or_refused(text):
    try:
        hosts = expand(text, ["n1", "x"])
    except UsageError:
        return
    assert hosts
    assert len(set(hosts)) == len(hosts)


def test_names_as_they_were_found_are_listed_whatever_they_are():
    assert listed(["n1", "n2", "n1"]) == "n[1-2]"
    assert listed(["n1", "a b", "n\udcff", "n1"]) == r"n1,a b,n\xff"
    assert listed([]) == ""
