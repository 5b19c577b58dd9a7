"""Compiles `logbroker/records/validation.py` with mypyc on request; all else is in pyproject.toml.

    python setup.py in-place            in a checkout, with the packages of its environment
    REWIND_COMPILE=1 pip install .      into the wheel; pip fetches mypy for the build

Both need a C compiler. Without REWIND_COMPILE a wheel is pure Python, and needs none.
"""

import os
import sys
from importlib.util import source_hash
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
PACKAGE = "logbroker.records"
FOLDER = ROOT / "logbroker" / "records"
BUILD = ROOT / "build" / "mypyc"


def compiled_validation() -> Extension:
    """Return the extension module of a copy of `validation.py`, named by the hash of the text.

    `logbroker.records.validator` looks for that name.
    """
    from mypyc.build import mypycify

    text = (FOLDER / "validation.py").read_bytes()
    name = f"validation_{source_hash(text).hex()}"
    copy = BUILD / f"{name}.py"
    BUILD.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(text)
    os.environ["MYPYPATH"] = str(ROOT)
    (extension,) = mypycify(["--config-file=", str(copy)], target_dir=str(BUILD / name))
    # Compiled as a module of the package, mypyc would build a group of two modules.
    extension.name = f"{PACKAGE}.{name}"
    return extension


def build_in_place() -> None:
    """Build the module next to its source, and remove those of earlier sources."""
    extension = compiled_validation()
    command = build_ext(Distribution({"ext_modules": [extension]}))
    command.inplace = True
    command.build_temp = str(BUILD)
    command.ensure_finalized()
    command.run()
    built = Path(command.get_ext_fullpath(extension.name))
    for path in FOLDER.glob("validation_*.so"):
        if path.name != built.name:
            path.unlink()


if sys.argv[1:] == ["in-place"]:
    build_in_place()
elif os.environ.get("REWIND_COMPILE") == "1":
    # pip first asks what the build needs, and then, with that installed, for the wheel.
    is_wheel = any(command in sys.argv for command in ("bdist_wheel", "editable_wheel"))
    setup(
        setup_requires=["mypy>=1.13"],
        ext_modules=[compiled_validation()] if is_wheel else [],
    )
else:
    setup()
