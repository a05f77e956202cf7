"""The gate for sentences finds what it should, and leaves alone what is plain."""

import pytest

import sentences


@pytest.mark.parametrize(
    ("path", "text", "faults"),
    [
        ("x.py", "# Of them only one.\n", 1),
        ("x.py", '"""Who asks: the node."""\n', 1),
        ("x.py", "x = 1  # there is none: that is none of ours\n", 1),
        ("x.py", '"""The median of each cell."""\n# A node reports its power.\nx = "Of them"\n', 0),
        ("x.cpp", "// That is\n// one sentence.\n", 1),
        ("x.cpp", "// The sentence goes on\n// That way.\nint x = 1;  // so many times\n", 1),
        ("x.cpp", 'const char* x = "http://Of that";\n', 0),
        ("x.hpp", "/// Reports the state, as often as it is told.\n", 1),
    ],
)
def test_faults_are_found_in_comments_alone(path, text, faults):
    assert len(list(sentences.faults(path, text))) == faults
