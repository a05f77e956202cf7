"""Every function of the families that read, write, open and query files is in a layer map, or known not to be.

The C library's and every installed MPI's own lists of exports are compared with the maps."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from sonde.io.maps import run_maps
from sonde.io.maps.run_elf import read_object

FAMILIES = re.compile(
    r"_*(f?open|fdopen|freopen|creat|close|f?close|p?read|p?write|readv|preadv|pwritev|writev|fread|fwrite"
    r"|fget|fput|get[cwsdl]|put[cswe]|f?w?printf|v.*printf|dprintf|scanf|f.*scanf|v.*scanf|opendir|readdir"
    r"|closedir|rewinddir|seekdir|telldir|scandir|fdopendir|dirfd|n?ftw|fts|glob|getdents|aio_|lio_|splice"
    r"|tee|vmsplice|sendfile|copy_file|sync|f(data)?sync|fflush|lseek|fseek|ftell|fsetpos|fgetpos|rewind|dup"
    r"|fcntl|pipe|socket|accept|mkstemp|mkostemp|mkdtemp|tmpfile|shm_|memfd|unlink|rename|remove|link|symlink"
    r"|readlink|mkdir|rmdir|stat|fstat|lstat|access|truncate|ftruncate|fallocate|posix_fa|flock|lockf|mmap"
    r"|msync|popen|pclose|eventfd|epoll_create|timerfd|signalfd|inotify|fanotify|chdir|fchdir)"
)
# Names that begin like those, by the reason why no map has them.
NOT_IN_MAPS = {
    "text in memory": "*vsn*printf* *vsprintf* *vasprintf* *vsscanf *vswprintf* *vswscanf "
    "open_memstream open_wmemstream __printf_fp printf_size printf_size_info putenv getsubopt getdate getdate_r",
    "the program's own functions do the work": "fopencookie",
    "databases of the system": "fget*ent fget*ent_r get*ent get*ent_r getserv* getsg* getsp* put*ent getlogin* "
    "__getlogin* getsecretkey openlog closelog __open_catalog",
    "the system's state": "getcontext getcpu getdomainname __getdomainname_chk getdtablesize getloadavg getsid "
    "getsockname getsockopt getsourcefilter create_module __getwd_chk",
    "of a counter, a timer or watched files, not of bytes": "eventfd_read eventfd_write timerfd_* inotify_*_watch "
    "fanotify_mark",
    "within the C library": "*_nocancel __shm_get_name *duplocale __freadable __freading flockfile",
    "set or free what others use": "aio_init glob_pattern_p globfree globfree64 open_tree",
}
NOT_OF_MPI = {
    "handlers of errors, and handles": "*errhandler* *_c2f *_f2c *_null *_op_eq *_op_ne",
    "call the C functions of the map": "*_f08 *_f08_ *_f08ts* *_cdesc* *_eq *_neq *_f",
}


def exported(library: Path) -> set[str]:
    known = read_object(library)
    assert known is not None
    return {one.name for one in known.functions if one.exported}


def in_maps() -> set[str]:
    return {name for layer in run_maps.shipped() for function in layer.functions for name in function.names}


def is_known(name: str, reasons: dict[str, str]) -> bool:
    return any(fnmatch.fnmatchcase(name, one) for listed in reasons.values() for one in listed.split())


def test_the_c_library_s_functions_on_files_are_in_a_map_or_known_not_to_be():
    paths = sorted(Path("/lib").glob("*-linux-gnu/libc.so.6"))
    if not paths:
        pytest.skip("no GNU C library is where this test looks for it")
    have = in_maps()
    mine = {name for name in exported(paths[0]) if FAMILIES.match(name)}
    assert len(mine) > 200
    assert sorted(name for name in mine - have if not is_known(name, NOT_IN_MAPS)) == []


@pytest.mark.parametrize("flavour", ["openmpi", "mpich"])
def test_mpi_s_functions_on_files_are_in_a_map_or_known_not_to_be(flavour: str):
    libraries = [
        path
        for name in ({"openmpi": "libmpi*.so.40", "mpich": "libmpich*.so.12"}[flavour],)
        for path in sorted(Path("/lib").glob(f"*-linux-gnu/{name}"))
        if "java" not in path.name and "cxx" not in path.name
    ]
    if not libraries:
        pytest.skip(f"{flavour} is not where this test looks for it")
    have = in_maps()
    mine = {
        name
        for library in libraries
        for name in exported(library)
        if re.fullmatch(r"P?MPI_File_.*|p?mpi_file_.*[^_]_|ompi_file_.*_f", name)
    }
    assert len(mine) > 100
    assert sorted(name for name in mine - have if not is_known(name, NOT_OF_MPI)) == []
