"""Take the public headers of HDF5 from a configured source tree, without the manual that their comments are.

    python take_headers.py <source>/src <build>/src third_party/hdf5-2.0

Each header keeps its copyright notice and its code; all other comments go, which makes a tenth of it. The set is what
`#include <hdf5.h>`, <H5VLconnector.h>, <H5VLconnector_passthru.h> and <H5VLnative.h> reach.
"""

import re
import sys
from pathlib import Path

WANTED = ["hdf5.h", "H5VLconnector.h", "H5VLconnector_passthru.h", "H5VLnative.h"]
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/|//[^\n]*', re.DOTALL)


def find(name: str, folders: list[Path]) -> Path | None:
    for folder in folders:
        for path in (folder / name, *folder.glob(f"*/{name}")):
            if path.is_file():
                return path
    return None


def strip(text: str) -> str:
    notice = re.match(r"\s*/\*.*?\*/", text, re.DOTALL)
    head = notice.group(0).strip() + "\n" if notice else ""
    body = TOKEN.sub(
        lambda m: " " if m.group(0)[0] == "/" else m.group(0), text[notice.end() if notice else 0 :]
    )
    lines = [line.rstrip() for line in body.splitlines()]
    return head + "\n" + "\n".join(line for line in lines if line.strip()) + "\n"


def main() -> None:
    *folders, out = map(Path, sys.argv[1:])
    todo, done = list(WANTED), set()
    while todo:
        name = todo.pop()
        path = find(name, folders)
        if name in done or path is None:
            continue
        done.add(name)
        text = path.read_text()
        todo += re.findall(r'#\s*include\s*["<](H5[^">]*)[">]', text)
        (out / name).write_text(strip(text))
    print(f"{len(done)} headers, {sum((out / n).stat().st_size for n in done) >> 10} KiB")


main()
