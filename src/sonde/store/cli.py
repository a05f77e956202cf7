"""sonde store: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import Exit, SondeError, UsageError, Warning, typed
from sonde.core.options import DURATION, Whole, common, settings
from sonde.core.outcome import Outcome, Table
from sonde.store import cli_run
from sonde.store.address import Address, parse
from sonde.store.cli_client import DEFAULT_SERVER, TOKEN_FILE, AuthType, Where, store_options, where_of
from sonde.store.cli_conformance import conformance

ROLE_OF = {"kv": ("kv",), "object": ("data",), "item": ("kv", "data"), "hdf5": ("kv", "data")}
BYTES = ("kv", "object", "item")  # of which put and get have the content
SAID = {"network": "", "storage": ", on stable storage"}


@click.group()
def group() -> None:
    """Keys, objects, items and tables on servers; what a transport costs them."""


# ---- the server


LISTED_MAX = 1_000_000  # `ls` holds them all; a server may list names for ever
WHO_GETS_IN = {
    "user": "you and root get in, nobody else",
    "token": "clients must have the token",
    "munge": "clients must prove by MUNGE who they are",
    "none": "every user of this machine gets in",
}


@group.command()
@common()
@click.option(
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep objects, keys and tables in this folder.",
)
@click.option("--memory", is_flag=True, help="Keep them in memory: gone when the server ends.")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="ROLE=NAME,...",
    help="What serves a role: data=posix,path=DIR; kv=lmdb,path=DIR; may be repeated.",
)
@click.option(
    "--listen",
    default=DEFAULT_SERVER,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0: any.",
)
@click.option(
    "--auth",
    type=AuthType(),
    default="user",
    show_default=True,
    metavar="HOW",
    help="Who may connect: user (only yours), token, munge, none (loopback only: everybody on it).",
)
@TOKEN_FILE
@click.option(
    "--tls",
    type=click.Choice(["off", "offer", "require"]),
    default="off",
    show_default=True,
    help="TLS 1.3 by the secret of user or token: offered to clients who ask for it, or required of all.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="USER",
    help="Let this user in, with --auth munge; may be repeated.",
)
@click.option(
    "--known-as",
    "known_as",
    multiple=True,
    metavar="HOST:PORT",
    help="The address that clients reach, where something forwards to this server; may be repeated.",
)
@click.option(
    "--transports",
    metavar="NAME,...",
    help="What clients may ask for.  [default: all on loopback; tcp where others reach it]",
)
@click.option(
    "--allow-provider",
    "allowed_providers",
    multiple=True,
    metavar="NAME",
    help="Let clients name a provider of libfabric that any process can crash (sockets, udp;ofi_rxd); may be repeated.",
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
    help="Limit on connections that have proved who they are.",
)
@click.option(
    "--client-memory",
    "client_memory",
    metavar="SIZE",
    help="Held for all clients together, at most.  [default: a quarter of this machine's memory]",
)
@click.option(
    "--query-timeout",
    "query_timeout_s",
    type=DURATION,
    metavar="TIME",
    help="End a batch with tables that takes longer (10s).",
)
@click.option(
    "--module",
    "modules",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Load backends and transports from a shared object; may be repeated.",
)
@click.option("--metrics", metavar="HOST:PORT", help="OpenMetrics over HTTP, at /metrics.")
@click.option(
    "--metrics-token",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What a scraper must send; needed where others can reach it.",
)
@click.option("--spin", "spin_s", type=DURATION, metavar="TIME", help="How long a wait may spin.")
@click.option("--no-nodelay", is_flag=True, help="Without TCP_NODELAY, to show what it costs.")
@click.option("--cork", is_flag=True, help="With TCP_CORK.")
@click.option(
    "--ready",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write there, as JSON, where it listens, once it does.",
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
    """Be a storage server, until Ctrl-C.

    Only you and root get in, by a key in your home folder that your clients find by themselves; --auth says who else
    may connect. What ends it, also kill -9 of this command, loses nothing that was acknowledged as stored.

    \b
    sonde store serve --path /scratch/store
    sonde store serve --memory --listen 127.0.0.1:0
    sonde store serve --path /scratch/store --listen 0.0.0.0:5440 --auth munge
    """
    from sonde.core.units import format_duration
    from sonde.store import run

    chosen = _backends(path, memory, backends, bool(modules))
    words = [word for role, text in chosen.items() for word in ("--backend", f"{role}={text}")]
    words = [*(word for module in modules for word in ("--module", str(module))), *words]
    words += ["--listen", listen, "--auth", auth, "--tls", tls]
    words += ["--threads", str(threads), "--connections", str(connections)]
    words += [word for user in users for word in ("--user", str(run.user_number(user)))]
    for name, value in (
        ("--token-file", token_file),
        ("--metrics", metrics),
        ("--metrics-token", metrics_token),
    ):
        words += (
            [name, str(value)] if value is not None and (name != "--token-file" or auth == "token") else []
        )
    words += [word for address in known_as for word in ("--known-as", address)]
    words += [word for name in allowed_providers for word in ("--allow-provider", name)]
    words += ["--client-memory", client_memory] if client_memory is not None else []
    words += ["--transports", transports] if transports is not None else []
    words += ["--query-timeout", f"{query_timeout_s}s"] if query_timeout_s is not None else []
    words += ["--spin", f"{spin_s}s"] if spin_s is not None else []
    words += ["--no-nodelay"] * no_nodelay + ["--cork"] * cork
    if auth == "token" and token_file is None:
        raise UsageError(
            "store.no_token", "--auth token needs --token-file", "make one with 'sonde store token FILE'"
        )
    say = settings().say

    written: list[Path] = []

    def told(event: Any) -> None:
        say(f"listening on {event['listen']}: {_what(chosen)}")
        say(WHO_GETS_IN[auth])
        if port := event.get("metrics_port"):
            host = str(metrics).rpartition(":")[0] or "127.0.0.1"
            say(f"metrics at http://{host}:{port}/metrics")
        say("Ctrl-C ends it")
        if ready is not None:
            run.write_ready(ready, event)
            written.append(ready)

    try:
        ended = run.serve(words, told, say)
    finally:  # also when the server died
        for file in written:
            file.unlink(missing_ok=True)
    return Outcome(
        "store",
        "serve",
        f"the server has ended after {format_duration(ended.served_s)}, and in order",
        values={"ended": ended.how, "served_s": ended.served_s},
        exit=Exit.INTERRUPTED if ended.how == "interrupted" else Exit.DONE,
        meant=True,
    )


def _backends(path: Path | None, memory: bool, given: Sequence[str], modules: bool) -> dict[str, str]:
    """The backends of a server, by role."""
    from sonde.store import run

    has = run.has()
    chosen: dict[str, str] = {}
    if path is not None and memory:
        raise UsageError("store.two_places", "--path and --memory were both given", "give one or the other")
    if path is not None:
        chosen = run.kept_in(path, lambda role: has[role])
    elif memory:
        chosen = {role: "memory" for role in run.ROLES if "memory" in has[role]}
    typed_roles = set()
    for word in given:
        role, equals, text = word.partition("=")
        if role not in run.ROLES or not equals:
            raise UsageError(
                "store.bad_backend",
                f"--backend '{word}' must begin with data=, kv= or db=",
                "write it like kv=lmdb,path=/scratch/keys",
            )
        if role in typed_roles:
            raise UsageError(
                "store.bad_backend",
                f"--backend names the role {role} twice",
                "start another server for the other",
            )
        name = text.partition(",")[0]
        # A module that should have it and does not load is told of by the server.
        if not modules and name not in has[role] and not has.get("broken_modules"):
            from sonde.core.errors import nearest

            raise UsageError(
                "store.unknown_backend",
                f"there is no backend '{name}' for the role {role}{nearest(name, has[role])}",
                f"there are: {', '.join(has[role])}; 'sonde doctor' says how to get more",
            )
        typed_roles.add(role)
        chosen[role] = text
    if not chosen:
        raise UsageError(
            "store.no_backend",
            "it is not said where the server keeps its data",
            "give --path DIR, or --memory for a trial",
        )
    return chosen


def _what(chosen: dict[str, str]) -> str:
    """ "objects in /scratch/objects (posix), keys in memory"."""
    from sonde.store.server_status import HOLDS

    parts = []
    for role, text in chosen.items():
        name, _, more = text.partition(",")
        where = next((word[5:] for word in more.split(",") if word.startswith("path=")), "")
        parts.append(f"{HOLDS[role]} in {f'{where} ({name})' if where else name}")
    return ", ".join(parts)


@group.command()
@common()
@click.option("--force", is_flag=True, help="Replace one that is there.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def token(file: Path, force: bool) -> Outcome:
    """Make the shared secret that --auth token asks for.

    Give the file to servers and clients alike. Only its owner may read it. The secret itself is never sent.

    \b
    sonde store token ~/.sonde-token
    sonde store serve --path /scratch/store --listen 0.0.0.0:5440 --auth token \\
      --token-file ~/.sonde-token
    """
    from sonde.store import run

    if str(file) == "-":
        raise UsageError(
            "store.bad_file",
            "a token is kept in a file that only you may read, not on stdout",
            "name one: sonde store token ~/.sonde-token",
        )
    run.make_token(file, force)
    return Outcome(
        "store",
        "token",
        f"{file} holds a new token",
        lines=[
            "Only you may read it. Servers and clients take it with --token-file, or from SONDE_STORE_TOKEN_FILE."
        ],
        values={"file": str(file)},
    )


# ---- its clients

ADDRESS = click.argument("address", metavar="ADDRESS")


@group.command()
@common()
@ADDRESS
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--exclusive", is_flag=True, help="Replace nothing: there must be none of that name yet.")
@store_options(safety=True)
def put(address: str, file: Path, exclusive: bool, **given: Any) -> Outcome:
    """Store a file's content, or what comes on stdin, under a name.

    ADDRESS is kv:SPACE/KEY (up to 16 MiB), object:SPACE/NAME or item:COLLECTION/NAME; FILE may be -. Bytes
    that are no text are written as %XX in names.

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
        f"{to} holds {format_size(stored)}{SAID[where.safety]}",
        values={"address": str(to), "bytes": stored, "safety": where.safety},
    )


@group.command()
@common()
@ADDRESS
@click.argument("file", metavar="[FILE]", default="-", type=click.Path(path_type=Path, allow_dash=True))
@store_options()
def get(address: str, file: Path, **given: Any) -> Outcome:
    """Bring what is stored under a name to a file, or to stdout.

    A file that is there is replaced once all has arrived. An item whose put did not end is told of where it goes to a
    file.

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
                "--json and '-' both want stdout",
                f"name a file: {typed('sonde', 'store', 'get', what, 'FILE', '--json')}",
            )
        return Outcome("store", "get", stream=_poured(where, what))
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
        f"{file} holds the {format_size(n)} of {what}",
        values={"address": str(what), "bytes": n, "file": str(file)},
        warnings=[] if complete else [_unfinished(what)],
        sound=complete,
    )


def _unfinished(item: Address | str) -> Warning:
    return Warning(
        "store.unfinished",
        f"{item} is not complete: a put of it has not ended",
        f"put it again, or remove it with {typed('sonde', 'store', 'rm', item)}",
    )


def _poured(where: Where, what: Address) -> Iterator[bytes]:
    from sonde.store import run_transfer as transfer

    with where.open(ROLE_OF[what.kind]) as client:
        yield from transfer.pieces(client, what)


@group.command("ls")
@common()
@click.argument("address", metavar="ADDRESS")
@click.option("-l", "--long", "long_", is_flag=True, help="With sizes; of objects and items also times.")
@click.option("--limit", type=Whole(1), metavar="N", help=f"At most so many.  [default: {LISTED_MAX}]")
@store_options()
def list_(address: str, long_: bool, limit: int | None, **given: Any) -> Outcome:
    """List the names that begin with an address, in byte order.

    Each is written so that it can be typed again. hdf5: has the files that the HDF5 connector keeps.

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
            Warning("store.cut", f"there are more than {most}", "raise --limit, or give a longer prefix")
        )
    elif not found:
        outcome.warnings.append(Warning("store.nothing", f"there is nothing whose name begins with {prefix}"))
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
@click.option("-r", "--recursive", is_flag=True, help="All whose names begin so.")
@click.option("-f", "--force", is_flag=True, help="One that is not there is no error.")
@store_options(safety=True)
def rm(addresses: tuple[str, ...], recursive: bool, force: bool, **given: Any) -> Outcome:
    """Remove what is stored under names.

    All are tried; what was not there is told at the end. An HDF5 file goes with all its parts; nobody may have it
    open.

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
    """Size of what is stored under a name; of objects and items also when it changed.

    ADDRESS may also be an HDF5 file, hdf5:/FILE. An item whose put did not end is told of.

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
    help="As 'step >= 10'; several must all hold.",
)
@click.option("--order", metavar="LIST", help="Fields to sort by; - in front of one: descending.")
@click.option("--fields", metavar="LIST", help="Only these fields.")
@click.option(
    "--limit", type=Whole(1), default="100", show_default=True, metavar="N", help="At most so many rows."
)
@store_options()
def query(
    table: str, conditions: tuple[str, ...], order: str | None, fields: str | None, limit: int, **given: Any
) -> Outcome:
    """Show rows of a table.

    A condition is a field, one of == != < <= > >= prefix like, and a value; or a field and 'is null' or
    'is not null'. In like % stands for any text, _ for one character. _id is a row's number.

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
    there = list(known)
    for name in names:
        bare = name.removeprefix("-") if option == "--order" else name
        if bare not in there:
            raise UsageError(
                "store.bad_value",
                f"{option}: the table has no field '{bare}'{nearest(bare, there)}",
                f"its fields are {', '.join(there)}",
            )
    return names


@group.command()
@common()
@store_options(embedded=False)
def status(**given: Any) -> Outcome:
    """What servers do, how long it takes them, and what went wrong last.

    Of several, those that answer are shown, those that do not are named; exit 3 when one does not.

    \b
    sonde store status
    sonde store status --server n17:5440 --server n18:5440 --json
    """
    from sonde.store import server_status
    from sonde.store.client import ServerStatus

    where = where_of(given)
    asked = dict(where.ask())
    servers = [said for said in asked.values() if isinstance(said, ServerStatus)]
    silent = {server: said for server, said in asked.items() if isinstance(said, SondeError)}
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
        values={"servers": [server_status.as_json(server, said) for server, said in asked.items()]},
    )
    if silent:
        outcome.exit = Exit.ENVIRONMENT
    return outcome


for command in (*cli_run.COMMANDS, conformance):
    group.add_command(command)
