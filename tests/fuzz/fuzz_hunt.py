"""Looks for an input at which a parser of Sonde's Python breaks its promise.

    python tests/fuzz/fuzz_hunt.py NAME [--seconds S] [--inputs N] [--seed N] [--found FOLDER] [--input FILE]

NAME: of fuzz_parsers.PARSERS. It ends with the first such input, after S seconds, or after N inputs, whichever comes
first; the input is written to FOLDER/NAME-SHA256. --input: reads this one only. Prints `inputs N`, and what went wrong.
Exit status: 0 nothing did, 1 something did, 2 bad words.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

from fuzz_mutations import Step, drawn, spoiled
from fuzz_parsers import PARSERS, Parser, Wrong, clear, hold

MEASURED = 16  # one of so many inputs has its memory measured


def shortest(one: Parser, seed: bytes, steps: list[Step]) -> bytes:
    """The input of as few of the steps as still make it go wrong."""
    for k in reversed(range(len(steps))):
        fewer = steps[:k] + steps[k + 1 :]
        try:
            hold(one, spoiled(seed, fewer))
        except Wrong:
            steps = fewer
    return spoiled(seed, steps)


def hunt(one: Parser, seconds: float, inputs: int, seed: int) -> tuple[int, bytes | None]:
    """How many inputs were read, and the one that went wrong, if one did."""
    source, seeds, end = random.Random(seed), one.seeds(), time.monotonic() + seconds
    done = 0
    while done < inputs and time.monotonic() < end:
        begin, steps = source.choice(seeds), drawn(source)
        data = spoiled(begin, steps)
        done += 1
        try:
            hold(one, data, measured=done % MEASURED == 0)
        except Wrong:
            return done, shortest(one, begin, steps)
    return done, None


def main(words: list[str]) -> int:
    asked = argparse.ArgumentParser(usage=(__doc__ or "").partition("\n\n")[2].partition("\n")[0].strip())
    asked.add_argument("name", choices=PARSERS, metavar="NAME")
    asked.add_argument("--seconds", type=float, default=30)
    asked.add_argument("--inputs", type=int, default=1 << 62)
    asked.add_argument("--seed", type=int, default=time.time_ns())
    asked.add_argument("--found", type=Path, default=Path("build/fuzz/found"))
    asked.add_argument("--input", type=Path)
    chosen = asked.parse_args(words)
    one = PARSERS[chosen.name]
    try:
        if chosen.input:
            done, wrong = 1, chosen.input.read_bytes()
        else:
            done, wrong = hunt(one, chosen.seconds, chosen.inputs, chosen.seed)
        print(f"inputs {done}")
        if wrong is None:
            return 0
        try:
            hold(one, wrong)
        except Wrong as why:
            print(why)
        else:
            if chosen.input:
                return 0
            print(f"{one.name}: an input went wrong once, and not when it was read again")
        if not chosen.input:
            chosen.found.mkdir(parents=True, exist_ok=True)
            file = chosen.found / f"{one.name}-{hashlib.sha256(wrong).hexdigest()[:16]}"
            file.write_bytes(wrong)
            print(f"found {file}")
        return 1
    finally:
        clear()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
