"""Keys, certificates and signed documents of a bus, in a folder.

    FOLDER/identity_ca.pem permissions_ca.pem governance.p7s      for everyone
    FOLDER/private/                                               what signs, what was signed: stays where they are made
    FOLDER/<identity>/cert.pem key.pem permissions.p7s            for who is that identity

Made with `cryptography` (Apache-2.0 or BSD). ECDSA on P-256: DDS Security 1.1, section 9.3.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sonde.bus.keys import DOMAINS, Grant, check_days, check_name, governance, grant_of, permissions
from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError

AUTHORITIES = ("identity_ca", "permissions_ca")
PRIVATE = "private"
EARLIER = timedelta(
    hours=1
)  # hosts whose clocks are late must not take a new certificate for one of tomorrow


@dataclass(frozen=True)
class Identity:
    """One that a folder has. until: of its certificate, and of its permissions, UTC. grant: as its permissions say."""

    name: str
    until: datetime
    grant: Grant
    domains: tuple[int, int]


def _unreadable(path: Path, why: object) -> EnvironmentFailure:
    return EnvironmentFailure(
        "bus.bad_keys", f"{path} cannot be used: {why}", "make the keys again: sonde bus keys init FOLDER"
    )


def _failed(path: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(
        "bus.cannot_write",
        f"{path} cannot be written: {error.strerror}",
        "name a folder that you may write, with place left",
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _appear(folder: Path, files: dict[str, tuple[bytes, int]], mode: int) -> None:
    """Makes a folder with these files, {name: (content, mode)}: whole or not at all."""
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(mode=mode)
        for name, (content, file_mode) in files.items():
            (part / name).parent.mkdir(mode=0o700, exist_ok=True)
            _write(part / name, content, file_mode)
        part.rename(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _failed(folder, error) from None
    except BaseException:  # Ctrl-C: half a set of keys is worse than none
        shutil.rmtree(part, ignore_errors=True)
        raise


def _needed() -> None:
    """Raises EnvironmentFailure where there is no `cryptography`, before anything was made."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise EnvironmentFailure(
            "bus.no_cryptography",
            f"keys and certificates are made by the Python package 'cryptography', which cannot be loaded: {error}",
            distribution.install_python("cryptography"),
        ) from None


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    private: bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return private


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certificate(
    name: str, key: Any, issuer: Any, issuer_key: Any, begin: datetime, end: datetime, authority: bool
) -> Any:
    """A certificate for the public half of `key`. issuer: a certificate; None: it signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
    )
    return made.sign(issuer_key, hashes.SHA256())


def _signed(text: str, certificate: Any, key: Any) -> bytes:
    """S/MIME, text and signature apart, as DDS Security 1.1, section 9.4.1.1, wants it."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

    made: bytes = (
        pkcs7.PKCS7SignatureBuilder()
        .set_data(text.encode())
        .add_signer(certificate, key, hashes.SHA256())
        .sign(Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text])
    )
    return made


def _read_certificate(file: Path) -> Any:
    """Raises OSError, and ValueError for a file that is no certificate."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        _ = found.not_valid_after_utc  # which is decoded when it is asked for
    except x509.InvalidVersion as error:  # no ValueError
        raise ValueError(str(error)) from None
    return found


def _load(folder: Path, name: str) -> tuple[Any, Any]:
    """(certificate, private key) of an authority of the folder."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate_file, key_file = folder / f"{name}.pem", folder / PRIVATE / f"{name}.key.pem"
    for file in (certificate_file, key_file):
        if not file.exists():
            raise EnvironmentFailure(
                "bus.no_keys",
                f"{folder} has no {file.relative_to(folder)}, which identities are signed with",
                f"sonde bus keys init {folder}"
                if not certificate_file.exists()
                else "make identities where the folder was made",
            )
    try:
        return _read_certificate(certificate_file), load_pem_private_key(key_file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(key_file, error) from None


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def init(folder: Path, days: int, domains: tuple[int, int], protection: str) -> datetime:
    """Makes the folder, its two authorities and its governance; until when they are valid. Raises: it is there."""
    _needed()
    check_days(days)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "bus.keys_there",
            f"{folder} is there already",
            f"add an identity to it: sonde bus keys add {folder} node-manager --role node-manager",
        )
    if folder.exists():
        try:
            folder.rmdir()
        except OSError as error:
            raise _failed(folder, error) from None
    begin, end = _now() - EARLIER, _now() + timedelta(days=days)
    files: dict[str, tuple[bytes, int]] = {}
    for name in AUTHORITIES:
        key = _new_key()
        certificate = _certificate(
            f"Sonde bus {name.replace('_ca', ' authority')}", key, None, key, begin, end, True
        )
        files[f"{name}.pem"] = (_pem_of(certificate), 0o644)
        files[f"{PRIVATE}/{name}.key.pem"] = (_pem(key), 0o600)
        if name == "permissions_ca":
            files["governance.p7s"] = (_signed(governance(domains, protection), certificate, key), 0o644)
    _appear(folder, files, 0o755)
    return end


def _pem_of(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: bytes = certificate.public_bytes(Encoding.PEM)
    return pem


def add(
    folder: Path, name: str, grant: Grant | None, days: int, domains: tuple[int, int] | None, again: bool
) -> Identity:
    """Makes an identity. again: in place of one that is there; who uses that one goes on with it.

    grant, domains: None: what the one that is there has; without one there is no grant, and all domains.
    """
    _needed()
    check_name(name)
    check_days(days)
    home = folder / name
    if home.exists() and not (home / "cert.pem").is_file():
        raise UsageError(
            "bus.no_identity",
            f"{home} is there, and is no identity: it has no cert.pem",
            "take another name, or move it away",
        )
    if home.exists() and not again:
        raise UsageError(
            "bus.identity_there",
            f"{folder} has an identity '{name}' already",
            "give --renew to replace it, or another name",
        )
    if home.exists() and (grant is None or domains is None):
        before = _as_before(home)
        grant, domains = grant or before.grant, domains or before.domains
    grant, domains = grant or grant_of((), (), ()), domains or DOMAINS
    identity_ca, identity_key = _load(folder, "identity_ca")
    permissions_ca, permissions_key = _load(folder, "permissions_ca")
    begin = _now() - EARLIER
    wanted = _now() + timedelta(days=days)
    end = min(wanted, identity_ca.not_valid_after_utc, permissions_ca.not_valid_after_utc)
    if end <= _now():
        raise EnvironmentFailure(
            "bus.keys_expired",
            f"the authorities of {folder} were valid until {end:%Y-%m-%d}",
            "make a new folder: sonde bus keys init",
        )
    key = _new_key()
    files = {
        "cert.pem": (_pem_of(_certificate(name, key, identity_ca, identity_key, begin, end, False)), 0o644),
        "key.pem": (_pem(key), 0o600),
        "permissions.p7s": (
            _signed(permissions(name, grant, domains, begin, end), permissions_ca, permissions_key),
            0o644,
        ),
    }
    old = home.with_name(f".{name}.{secrets.token_hex(4)}.old")
    if home.exists():
        try:
            home.rename(old)
        except OSError as error:
            raise _failed(home, error) from None
    try:
        _appear(home, files, 0o700)
    except BaseException:
        if old.exists():
            old.rename(home)
        raise
    shutil.rmtree(old, ignore_errors=True)
    part = _copy(home).with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        _write(part, files["permissions.p7s"][0], 0o600)
        part.rename(_copy(home))
    except OSError as error:
        raise _failed(_copy(home), error) from None
    return Identity(name, end, grant, domains)


def _identity(home: Path) -> Identity:
    """The one of a folder. Topics and domains that are not written as Sonde writes them are not seen: (), (-1, -1)."""
    try:
        certificate = _read_certificate(home / "cert.pem")
        text = (home / "permissions.p7s").read_text()
    except (OSError, ValueError) as error:
        raise _unreadable(home, error) from None
    topics = {
        word: tuple(re.findall(r"<topic>([^<]*)</topic>", match[1]))
        if (match := pattern.search(text))
        else ()
        for word, pattern in _TOPICS.items()
    }
    bounds = _RANGE.search(text)
    domains = (int(bounds[1]), int(bounds[2])) if bounds else (-1, -1)
    grant = Grant(topics["publish"], topics["subscribe"])
    return Identity(home.name, certificate.not_valid_after_utc, grant, domains)


def _copy(home: Path) -> Path:
    """What its permissions were when they were signed, where only those who sign can write."""
    return home.parent / PRIVATE / f"{home.name}.p7s"


def _as_before(home: Path) -> Identity:
    """The one of a folder, to be made anew. Raises UsageError: its permissions are not those that were signed here."""
    try:
        same = _copy(home).read_bytes() == (home / "permissions.p7s").read_bytes()
    except OSError:
        same = False
    if not same:
        raise UsageError(
            "bus.other_permissions",
            f"{home}/permissions.p7s says other things than were signed here: it is not made anew as it is",
            "say it all: --role, or --publish and --subscribe; and --domains",
        )
    return _identity(home)


_TOPICS = {
    word: re.compile(rf"<{word}><topics>(.*?)</topics>", re.DOTALL) for word in ("publish", "subscribe")
}
_RANGE = re.compile(r"<min>([0-9]{1,9})</min><max>([0-9]{1,9})</max>")


def identities(folder: Path) -> tuple[datetime, list[Identity]]:
    """Until when the folder's authorities are valid, and its identities, by name. Raises: no such folder."""
    _needed()
    file = folder / "identity_ca.pem"
    try:
        until = _read_certificate(file).not_valid_after_utc
        homes = sorted(
            home
            for home in folder.iterdir()
            if (home / "cert.pem").exists() and not home.name.startswith(".")
        )
    except OSError as error:
        raise EnvironmentFailure(
            "bus.no_keys",
            f"{folder} is no folder of keys: {error.strerror}",
            f"make it: sonde bus keys init {folder}",
        ) from None
    except ValueError as error:
        raise _unreadable(file, error) from None
    return until, [_identity(home) for home in homes]
