"""Keys, certificates and signed documents of a bus, in a folder.

    FOLDER/identity_ca.pem permissions_ca.pem governance.p7s      for every participant
    FOLDER/private/                                               keys of the authorities, signed copies: stay here
    FOLDER/<identity>/cert.pem key.pem permissions.p7s            for the program with that identity

Created with `cryptography` (Apache-2.0 or BSD). ECDSA on P-256: DDS Security 1.1, section 9.3.
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
from sonde.core.owned_files import make_folder, refuse_folder_of_others

AUTHORITIES = ("identity_ca", "permissions_ca")
PRIVATE = "private"
EARLIER = timedelta(hours=1)  # a host whose clock is late must not reject a new certificate as not yet valid


@dataclass(frozen=True)
class Identity:
    """An identity in a folder. until: end of its certificate and permissions, UTC. grant: as its permissions state."""

    name: str
    until: datetime
    grant: Grant
    domains: tuple[int, int]


def _unreadable(path: Path, why: object) -> EnvironmentFailure:
    return EnvironmentFailure(
        "bus.bad_keys", f"{path} cannot be used: {why}", "create the keys again: sonde bus keys init FOLDER"
    )


def _failed(path: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(
        "bus.cannot_write",
        f"{path} cannot be written: {error.strerror}",
        "name a writable folder with free space",
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _appear(folder: Path, files: dict[str, tuple[bytes, int]], mode: int) -> None:
    """Create a folder with these files, {name: (content, mode)}, atomically."""
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        refuse_folder_of_others(folder.parent, folder, "choose")
        make_folder(folder.parent, parents=True, exist_ok=True)
        make_folder(part, mode)
        for name, (content, file_mode) in files.items():
            make_folder((part / name).parent, 0o700, exist_ok=True)
            _write(part / name, content, file_mode)
        part.rename(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _failed(folder, error) from None
    except BaseException:  # Ctrl-C: an incomplete set of keys is worse than none
        shutil.rmtree(part, ignore_errors=True)
        raise


def _needed() -> None:
    """Raise EnvironmentFailure if `cryptography` is missing, before anything is created."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise EnvironmentFailure(
            "bus.no_cryptography",
            f"the Python package 'cryptography', which creates keys and certificates, cannot be loaded: {error}",
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
    """A certificate for the public key of `key`. issuer: a certificate; None: self-signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
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
    return builder.sign(issuer_key, hashes.SHA256())


def _signed(text: str, certificate: Any, key: Any) -> bytes:
    """The text with a detached S/MIME signature, as DDS Security 1.1, section 9.4.1.1, requires."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

    document: bytes = (
        pkcs7.PKCS7SignatureBuilder()
        .set_data(text.encode())
        .add_signer(certificate, key, hashes.SHA256())
        .sign(Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text])
    )
    return document


def _read_certificate(file: Path) -> Any:
    """The certificate in a file. Raises OSError, and ValueError for a file that is no certificate."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        _ = found.not_valid_after_utc  # decoded only on access
    except x509.InvalidVersion as error:  # not a subclass of ValueError
        raise ValueError(str(error)) from None
    return found


def _load(folder: Path, name: str) -> tuple[Any, Any]:
    """The certificate and the private key of an authority of the folder."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate_file, key_file = folder / f"{name}.pem", folder / PRIVATE / f"{name}.key.pem"
    for file in (certificate_file, key_file):
        if not file.exists():
            raise EnvironmentFailure(
                "bus.no_keys",
                f"{folder} has no {file.relative_to(folder)}, which signs identities",
                f"sonde bus keys init {folder}"
                if not certificate_file.exists()
                else "create identities on the machine where the folder was created",
            )
    try:
        return _read_certificate(certificate_file), load_pem_private_key(key_file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(key_file, error) from None


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def init(folder: Path, days: int, domains: tuple[int, int], protection: str) -> datetime:
    """Create the folder, its two authorities and its governance. Returns the end of their validity. Raises UsageError:
    the folder exists.
    """
    _needed()
    check_days(days)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "bus.keys_there",
            f"{folder} exists already",
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
    """Create an identity. again: replace an existing one; programs that already use it continue with the old files.

    grant, domains: None: those of the existing identity; without one, no grant and all domains.
    """
    _needed()
    check_name(name)
    check_days(days)
    home = folder / name
    if home.exists() and not (home / "cert.pem").is_file():
        raise UsageError(
            "bus.no_identity",
            f"{home} exists but is no identity: it has no cert.pem",
            "use another name, or move it away",
        )
    if home.exists() and not again:
        raise UsageError(
            "bus.identity_there",
            f"{folder} already has an identity '{name}'",
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
            "create a new folder: sonde bus keys init",
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
    """The identity in a folder. Topics and domains that Sonde did not write itself are not recognized: (), (-1, -1)."""
    try:
        certificate = _read_certificate(home / "cert.pem")
        text = (home / "permissions.p7s").read_text()
    except (OSError, ValueError) as error:
        raise _unreadable(home, error) from None
    topics = {
        element: tuple(re.findall(r"<topic>([^<]*)</topic>", match[1]))
        if (match := pattern.search(text))
        else ()
        for element, pattern in _TOPICS.items()
    }
    bounds = _RANGE.search(text)
    domains = (int(bounds[1]), int(bounds[2])) if bounds else (-1, -1)
    grant = Grant(topics["publish"], topics["subscribe"])
    return Identity(home.name, certificate.not_valid_after_utc, grant, domains)


def _copy(home: Path) -> Path:
    """The copy of the signed permissions, in a folder that only the signer can write."""
    return home.parent / PRIVATE / f"{home.name}.p7s"


def _as_before(home: Path) -> Identity:
    """The identity in a folder, for its renewal. Raises UsageError: its permissions differ from those signed here."""
    try:
        same = _copy(home).read_bytes() == (home / "permissions.p7s").read_bytes()
    except OSError:
        same = False
    if not same:
        raise UsageError(
            "bus.other_permissions",
            f"{home}/permissions.p7s differs from the permissions that were signed here, so it is not renewed as it is",
            "give everything: --role, or --publish and --subscribe; and --domains",
        )
    return _identity(home)


_TOPICS = {
    element: re.compile(rf"<{element}><topics>(.*?)</topics>", re.DOTALL)
    for element in ("publish", "subscribe")
}
_RANGE = re.compile(r"<min>([0-9]{1,9})</min><max>([0-9]{1,9})</max>")


def identities(folder: Path) -> tuple[datetime, list[Identity]]:
    """The end of validity of the folder's authorities, and its identities by name. Raises EnvironmentFailure: no such
    folder.
    """
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
            f"create it: sonde bus keys init {folder}",
        ) from None
    except ValueError as error:
        raise _unreadable(file, error) from None
    return until, [_identity(home) for home in homes]
