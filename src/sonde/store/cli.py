"""sonde store: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import Exit, SondeError, UsageError, Warning, typed
from sonde.core.options import DURATION, Whole, common, settings
from sonde.core.outcome import Outcome, Table
from sonde.store import cli_run
from sonde.store.address import Address, parse
from sonde.store.cli_backends import backends_of, described
from sonde.store.cli_client import DEFAULT_SERVER, TOKEN_FILE, AuthType, Where, store_options, where_of
from sonde.store.cli_conformance import conformance

ROLE_OF = {"kv": ("kv",), "object": ("data",), "item": ("kv", "data"), "hdf5": ("kv", "data")}
BYTES = ("kv", "object", "item")  # kinds whose content put and get transfer
SAFETY_TEXT = {"network": "", "storage": ", on stable storage"}


@click.group()
def group() -> None:
    """Keys, objects, items and tables on servers; what a transport costs them."""


# ---- the server


LISTED_MAX = 1_000_000  # `ls` holds all names in memory, and a faulty server may list names without end
ACCESS_TEXT = {
    "user": "only you and root can connect",
    "token": "clients need the token",
    "munge": "clients must prove their identity with MUNGE",
    "none": "every user of this machine can connect",
}


@group.command()
@common()
@click.option(
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Store objects, keys and tables in this folder.",
)
@click.option("--memory", is_flag=True, help="Store them in memory. They are lost when the server ends.")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="ROLE=NAME,...",
    help="The backend for a role: data=posix,path=DIR; kv=lmdb,path=DIR; may be repeated.",
)
@click.option(
    "--listen",
    default=DEFAULT_SERVER,
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen at; port 0: any free port.",
)
@click.option(
    "--auth",
    type=AuthType(),
    default="user",
    show_default=True,
    metavar="HOW",
    help="How clients prove who they are: user (only yours), token, munge, none (only on loopback: everybody).",
)
@TOKEN_FILE
@click.option(
    "--tls",
    type=click.Choice(["off", "offer", "require"]),
    default="off",
    show_default=True,
    help="TLS 1.3 with keys from the secret of user or token: offered to clients, or required from all.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="USER",
    help="Allow this user to connect, with --auth munge; may be repeated.",
)
@click.option(
    "--known-as",
    "known_as",
    multiple=True,
    metavar="HOST:PORT",
    help="The address that clients use when connections to this server are forwarded; may be repeated.",
)
@click.option(
    "--transports",
    metavar="NAME,...",
    help="The transports that clients may use.  [default: all on loopback, else tcp]",
)
@click.option(
    "--allow-provider",
    "allowed_providers",
    multiple=True,
    metavar="NAME",
    help="Allow clients a libfabric provider that any process can crash (sockets, udp;ofi_rxd); may be repeated.",
)
@click.option(
    "--threads",
    type=Whole(1),
    default="1",
    show_default=True,
    metavar="N",
    help="Threads that serve connections.",
)
@click.option(
    "--connections",
    type=Whole(1),
    default="4096",
    show_default=True,
    metavar="N",
    help="Maximum number of authenticated connections.",
)
@click.option(
    "--client-memory",
    "client_memory",
    metavar="SIZE",
    help="Maximum memory for all clients together.  [default: a quarter of this machine's memory]",
)
@click.option(
    "--query-timeout",
    "query_timeout_s",
    type=DURATION,
    metavar="TIME",
    help="Maximum time of a batch with tables.  [default: 10s]",
)
@click.option(
    "--module",
    "modules",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Load backends and transports from a shared object; may be repeated.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve OpenMetrics over HTTP, at /metrics.")
@click.option(
    "--metrics-token",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token that a scraper must send; required unless --metrics is on loopback.",
)
@click.option("--spin", "spin_s", type=DURATION, metavar="TIME", help="Maximum time to spin before sleeping.")
@click.option("--no-nodelay", is_flag=True, help="Do not set TCP_NODELAY, to show the cost.")
@click.option("--cork", is_flag=True, help="Set TCP_CORK.")
@click.option(
    "--ready",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the server's address to this file, as JSON, when it is ready.",
)
def serve(
    path: Path | None,
    memory: bool,
    backends: tuple[str, ...],
    listen: str,
    auth: str,
    token_file: Path | None,
    tls: str,
    users: tuple[str, ...],
    threads: int,
    transports: str | None,
    allowed_providers: tuple[str, ...],
    connections: int,
    known_as: tuple[str, ...],
    client_memory: str | None,
    query_timeout_s: float | None,
    modules: tuple[Path, ...],
    metrics: str | None,
    metrics_token: Path | None,
    spin_s: float | None,
    no_nodelay: bool,
    cork: bool,
    ready: Path | None,
) -> Outcome:
    """Run a storage server until Ctrl-C.

    By default only you and root can connect, with a key in your home folder that your clients find by themselves.
    --auth selects another way. Data that was acknowledged as stored is never lost, even after kill -9 of this command.

    \b
    sonde store serve --path /scratch/store
    sonde store serve --memory --listen 127.0.0.1:0
    sonde store serve --path /scratch/store --listen 0.0.0.0:5440 --auth munge
    """
    from sonde.core.surroundings import from_start_folder
    from sonde.core.units import format_duration
    from sonde.store import run

    chosen = backends_of(path, memory, backends, bool(modules))
    argv = [word for module in modules for word in ("--module", from_start_folder(str(module)))]
    for role, text in chosen.items():
        found_at = re.sub(r"(?<=,path=)[^,]+", lambda given: from_start_folder(given[0]), text)
        argv += ["--backend", f"{role}={found_at}"]
    argv += ["--listen", listen, "--auth", auth, "--tls", tls]
    argv += ["--threads", str(threads), "--connections", str(connections)]
    argv += [word for user in users for word in ("--user", str(run.user_number(user)))]
    for name, value in (
        ("--token-file", token_file and from_start_folder(str(token_file))),
        ("--metrics", metrics),
        ("--metrics-token", metrics_token and from_start_folder(str(metrics_token))),
    ):
        argv += (
            [name, str(value)] if value is not None and (name != "--token-file" or auth == "token") else []
        )
    argv += [word for address in known_as for word in ("--known-as", address)]
    argv += [word for name in allowed_providers for word in ("--allow-provider", name)]
    argv += ["--client-memory", client_memory] if client_memory is not None else []
    argv += ["--transports", transports] if transports is not None else []
    argv += ["--query-timeout", f"{query_timeout_s}s"] if query_timeout_s is not None else []
    argv += ["--spin", f"{spin_s}s"] if spin_s is not None else []
    argv += ["--no-nodelay"] * no_nodelay + ["--cork"] * cork
    if auth == "token" and token_file is None:
        raise UsageError(
            "store.no_token", "--auth token needs --token-file", "make one with 'sonde store token FILE'"
        )
    say = settings().say

    written: list[Path] = []

    def report_ready(event: Any) -> None:
        say(f"listening on {event['listen']}: {described(chosen)}")
        say(ACCESS_TEXT[auth])
        if port := event.get("metrics_port"):
            host = str(metrics).rpartition(":")[0] or "127.0.0.1"
            say(f"metrics at http://{host}:{port}/metrics")
        say("press Ctrl-C to end it")
        if ready is not None:
            run.write_ready(ready, event)
            written.append(ready)

    try:
        ended = run.serve(argv, report_ready, say)
    finally:  # also when the server died
        for file in written:
            file.unlink(missing_ok=True)
    return Outcome(
        "store",
        "serve",
        f"the server ended cleanly after {format_duration(ended.served_s)}",
        values={"ended": ended.how, "served_s": ended.served_s},
        exit=Exit.INTERRUPTED if ended.how == "interrupted" else Exit.DONE,
        meant=True,
    )


@group.command()
@common()
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def token(file: Path, force: bool) -> Outcome:
    """Create the shared secret for --auth token.

    Servers and clients need the same file. Only its owner can read it. The secret itself is never sent.

    \b
    sonde store token ~/.sonde-token
    sonde store serve --path /scratch/store --listen 0.0.0.0:5440 --auth token \\
      --token-file ~/.sonde-token
    """
    from sonde.store import run

    if str(file) == "-":
        raise UsageError(
            "store.bad_file",
            "a token must be written to a file that only you can read, not to stdout",
            "name a file: sonde store token ~/.sonde-token",
        )
    run.make_token(file, force)
    return Outcome(
        "store",
        "token",
        f"new token written to {file}",
        lines=[
            "Only you can read it. Give it to servers and clients with --token-file or SONDE_STORE_TOKEN_FILE."
        ],
        values={"file": str(file)},
    )


# ---- its clients

ADDRESS = click.argument("address", metavar="ADDRESS")


@group.command()
@common()
@ADDRESS
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--exclusive", is_flag=True, help="Fail if the name exists already.")
@store_options(safety=True)
def put(address: str, file: Path, exclusive: bool, **given: Any) -> Outcome:
    """Store the content of a file, or of stdin, under a name.

    ADDRESS is kv:SPACE/KEY (up to 16 MiB), object:SPACE/NAME or item:COLLECTION/NAME. FILE may be - for stdin. In
    names, write bytes that are not text as %XX.

    \b
    sonde store put kv:runs/42/input input.toml
    sonde store put object:fields/pressure pressure.bin --safety storage
    tar c results | sonde store put item:results/42 -
    """
    from sonde.core.units import format_size
    from sonde.store import run_transfer as transfer

    to, where = parse(address, kinds=BYTES), where_of(given)
    with transfer.source(file) as pieces, where.open(ROLE_OF[to.kind], make=True) as client:
        stored = transfer.put(client, to, pieces, exclusive)
    return Outcome(
        "store",
        "put",
        f"{to} holds {format_size(stored)}{SAFETY_TEXT[where.safety]}",
        values={"address": str(to), "bytes": stored, "safety": where.safety},
    )


@group.command()
@common()
@ADDRESS
@click.argument("file", metavar="[FILE]", default="-", type=click.Path(path_type=Path, allow_dash=True))
@store_options()
def get(address: str, file: Path, **given: Any) -> Outcome:
    """Read the data stored under a name into a file, or to stdout.

    An existing file is replaced when all data has arrived. When the data goes to a file, a warning reports an item
    whose put has not ended.

    \b
    sonde store get kv:runs/42/input
    sonde store get object:fields/pressure pressure.bin
    sonde store get item:results/42 - | tar x
    """
    from sonde.core.units import format_size
    from sonde.store import run_transfer as transfer

    what, where = parse(address, kinds=BYTES), where_of(given)
    if str(file) == "-":
        if settings().json:
            raise UsageError(
                "store.two_outputs",
                "--json and '-' both write to stdout",
                f"name a file: {typed('sonde', 'store', 'get', what, 'FILE', '--json')}",
            )
        return Outcome("store", "get", stream=_content(where, what))
    if file.is_dir():
        raise UsageError(
            "store.bad_file", f"{file} is a folder", f"name a file in it: {typed(file / 'FILE')}"
        )
    with where.open(ROLE_OF[what.kind]) as client, transfer.sink(file) as write:
        n = 0
        for piece in transfer.pieces(client, what):
            write(piece)
            n += len(piece)
        complete = what.kind != "item" or transfer.stat(client, what)["complete"]
    return Outcome(
        "store",
        "get",
        f"{format_size(n)} of {what} written to {file}",
        values={"address": str(what), "bytes": n, "file": str(file)},
        warnings=[] if complete else [_unfinished(what)],
        sound=complete,
    )


def _unfinished(item: Address | str) -> Warning:
    return Warning(
        "store.unfinished",
        f"{item} is not complete: its put has not ended",
        f"put it again, or remove it with {typed('sonde', 'store', 'rm', item)}",
    )


def _content(where: Where, what: Address) -> Iterator[bytes]:
    from sonde.store import run_transfer as transfer

    with where.open(ROLE_OF[what.kind]) as client:
        yield from transfer.pieces(client, what)


@group.command("ls")
@common()
@click.argument("address", metavar="ADDRESS")
@click.option("-l", "--long", "long_", is_flag=True, help="Show sizes, and times of objects and items.")
@click.option(
    "--limit", type=Whole(1), metavar="N", help=f"Maximum number of names.  [default: {LISTED_MAX}]"
)
@store_options()
def list_(address: str, long_: bool, limit: int | None, **given: Any) -> Outcome:
    """List the names that begin with an address, in byte order.

    Each name is printed as you would type it. hdf5: lists the files that the HDF5 connector stores.

    \b
    sonde store ls kv:runs/
    sonde store ls kv:runs/42/ --limit 10
    sonde store ls object:fields --long
    sonde store ls hdf5: --long
    """
    from sonde.store import run_transfer as transfer

    prefix, where = parse(address, whole_space=True), where_of(given)
    found: list[dict[str, Any]] = []
    cut = False
    most = limit or LISTED_MAX
    with where.open(ROLE_OF[prefix.kind]) as client:
        for entry in transfer.names(client, prefix, long_):
            if len(found) == most:
                cut = True
                break
            found.append(entry)
    outcome = Outcome("store", "ls", values={"prefix": str(prefix), "entries": found, "cut": cut})
    if not settings().json:
        outcome.document = _listed(found, long_)
    outcome.warnings += [_unfinished(entry["address"]) for entry in found if not entry.get("complete", True)]
    if cut:
        outcome.warnings.append(
            Warning(
                "store.cut", f"there are more than {most} names", "raise --limit, or give a longer prefix"
            )
        )
    elif not found:
        outcome.warnings.append(Warning("store.nothing", f"no name begins with {prefix}"))
    return outcome


def _listed(found: Sequence[dict[str, Any]], long_: bool) -> str:
    if not long_:
        return "".join(f"{entry['address']}\n" for entry in found)
    widest = max((len(str(entry["bytes"])) for entry in found), default=0)
    lines = []
    for entry in found:
        cells = [
            f"{entry['bytes']:>{widest}}",
            *([entry["changed"]] if "changed" in entry else []),
            entry["address"],
        ]
        lines.append("  ".join(cells) + "\n")
    return "".join(lines)


@group.command()
@common()
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("-r", "--recursive", is_flag=True, help="Remove all names that begin with the address.")
@click.option("-f", "--force", is_flag=True, help="Ignore names that do not exist.")
@store_options(safety=True)
def rm(addresses: tuple[str, ...], recursive: bool, force: bool, **given: Any) -> Outcome:
    """Remove the data stored under names.

    A missing name does not stop the command: it is reported at the end. An HDF5 file is removed with all its parts; no
    program may have it open.

    \b
    sonde store rm kv:runs/42/input object:fields/pressure
    sonde store rm --recursive kv:runs/42/
    sonde store rm hdf5:/home/a/results.h5
    """
    from sonde.store import run_transfer as transfer

    targets, where = [parse(address, recursive) for address in addresses], where_of(given)
    roles = list(dict.fromkeys(role for target in targets for role in ROLE_OF[target.kind]))
    removed, absent = 0, []
    with where.open(roles) as client:
        for target in targets:
            n, gone = transfer.remove(client, target, recursive)
            removed += n
            absent += gone if not recursive or n == 0 else []
    if absent and not force:
        more = f", and {len(absent) - 1} more" if len(absent) > 1 else ""
        done = f"; {removed} removed" if removed else ""
        raise transfer.not_there(absent[0], f"{more}{done}")
    return Outcome(
        "store",
        "rm",
        f"{removed} removed",
        values={"removed": removed, "absent": [str(one) for one in absent]},
    )


@group.command()
@common()
@ADDRESS
@store_options()
def stat(address: str, **given: Any) -> Outcome:
    """Show the size of the data under a name, and when objects and items changed.

    ADDRESS may also be an HDF5 file, hdf5:/FILE. A warning reports an item whose put has not ended.

    \b
    sonde store stat kv:runs/42/input
    sonde store stat item:results/42 --json
    sonde store stat hdf5:/home/a/results.h5
    """
    from sonde.core.units import format_size
    from sonde.store import run_transfer as transfer

    what, where = parse(address), where_of(given)
    with where.open(ROLE_OF[what.kind]) as client:
        facts = transfer.stat(client, what)
    rows = [
        (
            "size",
            f"{format_size(facts['bytes'])} ({facts['bytes']} B)"
            if facts["bytes"] >= 1024
            else f"{facts['bytes']} B",
        )
    ]
    rows += [(name, str(facts[name])) for name in ("changed", "created", "distribution") if name in facts]
    rows += [(f"metadata {name}", value) for name, value in facts.get("metadata", {}).items()]
    complete = facts.get("complete", True)
    return Outcome(
        "store",
        "stat",
        str(what),
        values=facts,
        tables=[Table("", ("", ""), rows)],
        warnings=[] if complete else [_unfinished(what)],
        sound=complete,
    )


@group.command()
@common()
@click.argument("table", metavar="SPACE/TABLE")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="A condition such as 'step >= 10'; may be repeated, then all must be true.",
)
@click.option(
    "--order", metavar="LIST", help="Fields to sort by; write - before a field for descending order."
)
@click.option("--fields", metavar="LIST", help="Show only these fields.")
@click.option(
    "--limit", type=Whole(1), default="100", show_default=True, metavar="N", help="Maximum number of rows."
)
@store_options()
def query(
    table: str, conditions: tuple[str, ...], order: str | None, fields: str | None, limit: int, **given: Any
) -> Outcome:
    """Show rows of a table.

    A condition is a field, one of == != < <= > >= prefix like, and a value; or a field and 'is null' or
    'is not null'. In a pattern for like, % stands for any text and _ for one character. _id is a row's number.

    \b
    sonde store query lab/runs --where 'step >= 10' --where 'case like cav%'
    sonde store query lab/runs --order -residual,step --fields case,step --json
    """
    from sonde.store import run_transfer as transfer
    from sonde.store.tables import condition

    address, where = parse(table, kinds=("table",)), where_of(given)
    with where.open(("db",)) as client:
        with transfer.about(address):
            found = client.table(address.space, address.name)
        chosen = ("all", [condition(text, found.fields) for text in conditions]) if conditions else None
        names = _names(fields, found.fields, "--fields")
        by = _names(order, (*found.fields, "_id"), "--order")
        rows = list(found.select(chosen, by, names, limit + 1))
    cut = len(rows) > limit
    del rows[limit:]
    columns = ["_id", *(names or found.fields)]
    numbers = [
        k
        for k, name in enumerate(columns)
        if found.fields.get(name, "uint64") not in ("text", "blob", "boolean")
    ]
    n = len(rows)
    outcome = Outcome(
        "store",
        "query",
        f"{n} row{'s' * (n != 1)} of {address}" + (", and there are more" if cut else ""),
        values={
            "table": str(address),
            "fields": found.fields,
            "rows": [{name: transfer.as_json(value) for name, value in row.items()} for row in rows],
            "cut": cut,
        },
    )
    if rows:
        cells = [[transfer.as_cell(row[name]) for name in columns] for row in rows]
        outcome.tables.append(Table("", columns, cells, right=numbers))
    if cut:
        outcome.warnings.append(Warning("store.cut", f"there are more than {limit} rows", "raise --limit"))
    return outcome


def _names(text: str | None, known: Iterable[str], option: str) -> list[str]:
    from sonde.core.errors import nearest

    names = [word.strip() for word in (text or "").split(",") if word.strip()]
    existing = list(known)
    for name in names:
        bare = name.removeprefix("-") if option == "--order" else name
        if bare not in existing:
            raise UsageError(
                "store.bad_value",
                f"{option}: the table has no field '{bare}'{nearest(bare, existing)}",
                f"its fields are {', '.join(existing)}",
            )
    return names


@group.command()
@common()
@store_options(embedded=False)
def status(**given: Any) -> Outcome:
    """Show what servers have done, how long it took, and their last error.

    Servers that do not answer are named, and the exit code is then 3.

    \b
    sonde store status
    sonde store status --server n17:5440 --server n18:5440 --json
    """
    from sonde.store import server_status
    from sonde.store.client import ServerStatus

    where = where_of(given)
    asked = dict(where.ask())
    servers = [answer for answer in asked.values() if isinstance(answer, ServerStatus)]
    silent = {server: answer for server, answer in asked.items() if isinstance(answer, SondeError)}
    if silent and len(asked) == 1:
        raise next(iter(silent.values()))
    outcome = Outcome(
        "store",
        "status",
        server_status.verdict(servers, len(asked)),
        findings=[],
        tables=[table for server in servers for table in server_status.tables(server)],
        warnings=[*server_status.silent(silent), *server_status.warnings(servers)],
        sound=not silent and not any(server_status.troubled(server) for server in servers),
        values={"servers": [server_status.as_json(server, answer) for server, answer in asked.items()]},
    )
    if silent:
        outcome.exit = Exit.ENVIRONMENT
    return outcome


for command in (*cli_run.COMMANDS, conformance):
    group.add_command(command)
