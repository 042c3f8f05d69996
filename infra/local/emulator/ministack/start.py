"""Starts MiniStack, the AWS emulator, with the patches of this folder.

MiniStack accepts requests that AWS rejects, and changes data that AWS delivers
unchanged. Each other file of this folder corrects one such difference, so that
a local run fails where AWS would fail. patching.py has what they share.

A patch that no longer fits MiniStack stops the start: see patching.replace.

MiniStack and its functions, which are in its process group, are killed when standard
input is closed, as it is when the program that started this one has ended.
"""

import importlib
import os
import pathlib
import runpy
import signal
import sys
import threading


def main():
    folder = pathlib.Path(__file__).resolve().parent
    # Compiled modules make the next start faster. They are not in the source tree, but in the virtual environment.
    sys.pycache_prefix = sys.prefix
    for file in sorted(folder.glob("*.py")):
        if file.stem in ("start", "patching"):
            continue
        try:
            importlib.import_module(file.stem)
        except Exception as problem:
            sys.exit(f"The patch {file.name} does not fit this version of MiniStack: {problem}")
    threading.Thread(target=end_with_stdin, daemon=True).start()
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)


def end_with_stdin():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


main()
