"""docs/explain/structure.md is what the code's imports are."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("structure", ROOT / "docs/structure.py")
structure = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(structure)


def test_the_page_is_up_to_date():
    assert (ROOT / "docs/explain/structure.md").read_text() == structure.page(), (
        "run: python docs/structure.py"
    )


def test_arrows_that_others_imply_are_left_out():
    assert structure.direct([("a", "b"), ("b", "c"), ("a", "c")]) == [("a", "b"), ("b", "c")]
    assert structure.direct([("a", "b"), ("a", "c")]) == [("a", "b"), ("a", "c")]
