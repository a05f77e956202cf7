from __future__ import annotations

import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from sonde.bus import keys, run_keys
from sonde.core.errors import EnvironmentFailure, UsageError


@pytest.fixture
def folder(tmp_path):
    run_keys.init(tmp_path / "keys", 100, (0, 230), "encrypt")
    return tmp_path / "keys"


def openssl(*words: object) -> str:
    return subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_a_certificate_is_one_of_its_authority(folder):
    run_keys.add(folder, "n017", keys.ROLES["node-manager"], 10, (0, 230), False)
    said = openssl("verify", "-CAfile", folder / "identity_ca.pem", folder / "n017/cert.pem")
    assert said.strip().endswith("OK")
    subject = openssl("x509", "-in", folder / "n017/cert.pem", "-noout", "-subject", "-nameopt", "RFC2253")
    assert subject == "subject=CN=n017\n"


@pytest.mark.parametrize("file", ["governance.p7s", "n017/permissions.p7s"])
def test_what_is_signed_is_believed_and_changes_are_noticed(folder, file):
    run_keys.add(folder, "n017", keys.ROLES["node-manager"], 10, (0, 230), False)
    ask = ["smime", "-verify", "-text", "-CAfile", folder / "permissions_ca.pem", "-in"]
    assert "<dds" in openssl(*ask, folder / file)
    text = (folder / file).read_bytes()
    (folder / "changed.p7s").write_bytes(text.replace(b"<max>230", b"<max>229", 1))
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*ask, folder / "changed.p7s")


def test_keys_are_for_their_owner_alone(folder):
    run_keys.add(folder, "n017", keys.ROLES["node-manager"], 10, (0, 230), False)
    private = [folder / "n017/key.pem", *(folder / "private").iterdir()]
    assert [stat.S_IMODE(file.stat().st_mode) for file in private] == [0o600] * 4
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o700


def test_identities_are_reported_as_they_were_made(folder):
    grant = keys.Grant(("A", "B_*"), ("C?",))
    made = run_keys.add(folder, "n017", grant, 10, (3, 9), False)
    until, found = run_keys.identities(folder)
    assert found == [made]
    assert made.grant == grant
    assert made.domains == (3, 9)
    assert abs(until - datetime.now(UTC) - timedelta(days=100)) < timedelta(minutes=5)


def test_an_identity_outlives_no_authority(folder):
    made = run_keys.add(folder, "n017", keys.ROLES["monitor"], 5000, (0, 230), False)
    assert made.until == run_keys.identities(folder)[0]


def test_an_identity_is_replaced_only_when_asked(folder):
    run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), False)
    before = (folder / "n017/key.pem").read_bytes()
    with pytest.raises(UsageError, match="already has an identity 'n017'"):
        run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), False)
    assert (folder / "n017/key.pem").read_bytes() == before
    run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), True)
    assert (folder / "n017/key.pem").read_bytes() != before
    assert sorted(one.name for one in folder.iterdir()) == [
        "governance.p7s", "identity_ca.pem", "n017", "permissions_ca.pem", "private",
    ]  # fmt: skip


def test_what_is_renewed_may_what_it_might_before(folder):
    made = run_keys.add(folder, "n017", keys.Grant(("A", "B_*"), ("C?",)), 5, (5, 7), False)
    again = run_keys.add(folder, "n017", None, 50, None, True)
    assert (again.grant, again.domains) == (made.grant, made.domains)
    assert again.until > made.until
    assert run_keys.identities(folder)[1] == [again]


def test_what_is_renewed_may_what_is_said(folder):
    run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (5, 5), False)
    again = run_keys.add(folder, "n017", keys.ROLES["slurm"], 5, None, True)
    assert (again.grant, again.domains) == (keys.ROLES["slurm"], (5, 5))
    again = run_keys.add(folder, "n017", None, 5, (0, 3), True)
    assert (again.grant, again.domains) == (keys.ROLES["slurm"], (0, 3))


def test_what_is_not_there_has_nothing_to_renew(folder):
    with pytest.raises(UsageError, match="has no permissions"):
        run_keys.add(folder, "n017", None, 5, None, True)
    assert run_keys.add(folder, "n017", keys.ROLES["slurm"], 5, None, True).domains == keys.DOMAINS


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("</allow_rule>", "</allow_rule><deny_rule></deny_rule>"),
        ("<publish><topics>", "<publish> <topics>"),
        ("<min>5</min>", "<min>0</min>"),
    ],
)
def test_permissions_of_others_are_not_cut_down_to_what_is_understood(folder, ours, theirs):
    run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (5, 5), False)
    file = folder / "n017/permissions.p7s"
    file.write_text(file.read_text().replace(ours, theirs, 1))
    before = file.read_bytes()
    with pytest.raises(UsageError, match="differs from the permissions that were signed here") as told:
        run_keys.add(folder, "n017", None, 5, None, True)
    assert "--domains" in told.value.hint
    assert file.read_bytes() == before
    run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (5, 5), True)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ["identity_ca.pem", "permissions_ca.pem", "governance.p7s", "private"])
def test_the_folder_s_own_files_stay(folder, name, again):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match="the folder has a file of this name"):
        run_keys.add(folder, name, keys.ROLES["monitor"], 5, (0, 230), again)
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("again", [False, True])
def test_what_is_no_identity_is_not_replaced(folder, again):
    (folder / "notes").mkdir()
    (folder / "notes/mine").write_text("kept")
    (folder / "list").write_text("kept")
    for name in ("notes", "list"):
        with pytest.raises(UsageError, match="exists but is no identity"):
            run_keys.add(folder, name, keys.ROLES["monitor"], 5, (0, 230), again)
    assert (folder / "notes/mine").read_text() == (folder / "list").read_text() == "kept"


def test_days_beyond_the_calendar_are_refused_before_anything_is_made(folder, tmp_path):
    with pytest.raises(UsageError, match="--days: 10000000"):
        run_keys.init(tmp_path / "more", 10_000_000, (0, 230), "encrypt")
    with pytest.raises(UsageError, match="--days: 10000000"):
        run_keys.add(folder, "n017", keys.ROLES["monitor"], 10_000_000, (0, 230), False)
    assert not (tmp_path / "more").exists()
    assert not (folder / "n017").exists()
    assert run_keys.init(tmp_path / "long", keys.MOST_DAYS, (0, 230), "encrypt").year > 2100


def test_a_folder_is_not_made_over_another(folder):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match="exists already"):
        run_keys.init(folder, 100, (0, 230), "sign")
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_without_what_signs_no_identity_is_made(folder):
    (folder / "private/identity_ca.key.pem").unlink()
    with pytest.raises(EnvironmentFailure, match="has no private/identity_ca") as told:
        run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), False)
    assert "where the folder was created" in told.value.hint
    assert not (folder / "n017").exists()


def test_a_key_that_is_none_is_reported(folder):
    (folder / "private/identity_ca.key.pem").write_text("nonsense")
    with pytest.raises(EnvironmentFailure, match="cannot be used"):
        run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), False)


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(EnvironmentFailure, match="is no folder of keys") as told:
        run_keys.identities(tmp_path / "nothing")
    assert "sonde bus keys init" in told.value.hint


def test_an_interrupted_identity_leaves_nothing(folder, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(run_keys, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_keys.add(folder, "n017", keys.ROLES["monitor"], 5, (0, 230), False)
    assert sorted(folder.rglob("*")) == before


def test_without_the_package_that_makes_keys_it_is_said_which_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    for doing in (
        lambda: run_keys.init(tmp_path / "none", 100, (0, 230), "encrypt"),
        lambda: run_keys.add(tmp_path, "n017", keys.ROLES["monitor"], 5, (0, 230), False),
        lambda: run_keys.identities(tmp_path),
    ):
        with pytest.raises(EnvironmentFailure) as failed:
            doing()
        assert failed.value.code == "bus.no_cryptography"
        assert "pip install 'cryptography" in failed.value.hint
    assert not list(tmp_path.iterdir())
