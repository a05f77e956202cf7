"""Whether a user's account may be used now, according to PAM. A program of its own, with the standard library alone.

    python -I run_job_account.py SERVICE USER      (exit 0 and `admitted`: it may; 1: it may not, and stdout
                                               says why; 2: no PAM here)

PAM loads modules chosen by the site into the process that asks, and they may wait for a directory that does not answer.
So this program asks PAM, with a time limit, and the caller stays unaffected. It authenticates nobody and opens no
session: it asks only the account part of the service's stack, which checks expired accounts, expired passwords,
pam_access, pam_time.

Source: pam(3), pam_acct_mgmt(3); it loads Linux-PAM's libpam.so.0, if present.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from sonde.core.surroundings import place_of_ranks

LIBRARY = "libpam.so.0"
ADMITTED, REFUSED, NO_PAM = 0, 1, 2
WORD = "admitted"
LONGEST_S = 10.0
_SILENT, _CONV_ERR = 0x8000, 19


def available() -> bool:
    """Whether PAM's library is on this machine."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def refusal(service: str, user: str) -> str:
    """The reason why an account may not be used now; "" if it may, or if there is no PAM.

    service: the PAM service whose stack is asked, a file in /etc/pam.d. No answer within 10 s counts as a refusal.
    """
    if not available():
        return ""
    command = [sys.executable, "-I", str(Path(__file__)), service, user]
    child = subprocess.Popen(
        command,
        cwd=place_of_ranks(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    try:
        output, _ = child.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(
            subprocess.TimeoutExpired
        ):  # a process that waits for a dead file server ends when the server answers
            child.wait(1)
        return f"PAM's service '{service}' gave no answer within {LONGEST_S:g} s"
    # A module that ends the program, or a Python that cannot start it, also gives an exit status.
    if child.returncode == ADMITTED and output.splitlines()[-1:] == [WORD]:
        return ""
    return output.strip()[:300] or f"PAM's service '{service}' exited with status {child.returncode}"


_TALK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class _Conversation(ctypes.Structure):
    _fields_ = (("talk", _TALK), ("data", ctypes.c_void_p))


def _silent(_count: int, _messages: int, _responses: object, _data: int) -> int:
    return _CONV_ERR  # nobody is present who could answer a prompt


def main(service: str, user: str) -> int:
    try:
        pam = ctypes.CDLL(LIBRARY)
    except OSError:
        return NO_PAM
    pam.pam_strerror.restype = ctypes.c_char_p
    pam.pam_strerror.argtypes = (ctypes.c_void_p, ctypes.c_int)
    pam.pam_acct_mgmt.argtypes = (ctypes.c_void_p, ctypes.c_int)
    pam.pam_end.argtypes = (ctypes.c_void_p, ctypes.c_int)
    handle, conversation = ctypes.c_void_p(), _Conversation(_TALK(_silent), None)
    code = pam.pam_start(service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    if code == 0:
        code = pam.pam_acct_mgmt(handle, _SILENT)
    if code != 0:
        why = (pam.pam_strerror(handle, code) or b"").decode("utf-8", "replace") or f"code {code}"
        os.write(1, f"PAM's service '{service}' does not admit '{user}': {why}\n".encode("utf-8", "replace"))
    else:
        os.write(1, f"{WORD}\n".encode())
    if handle:
        pam.pam_end(handle, code)
    return REFUSED if code else ADMITTED


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2]))  # modules of PAM may have left threads
