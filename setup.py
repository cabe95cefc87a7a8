"""Builds the extension, as ``PHPMQ_BUILD_EXT`` says; everything else stands in pyproject.toml.

auto     build it, and install pure Python where that fails (the default)
require  build it, or fail
skip     install pure Python
"""

import os
import runpy

from setuptools import Extension, setup
from setuptools.command import build_ext as original
from setuptools.errors import BaseError, CompileError, LinkError

MODE = os.environ.get("PHPMQ_BUILD_EXT") or "auto"
if MODE not in ("auto", "require", "skip"):
    raise SystemExit(f"PHPMQ_BUILD_EXT must be auto, require or skip, not {MODE!r}")

VERSION_FILE = "src/phpmq/_version.py"
EXTENSION = Extension(
    "phpmq._codec_c",
    ["src/phpmq/_codec_c.pyx"],
    # The extension carries the version that it was built for, so that a stale one is refused.
    define_macros=[("PHPMQ_VERSION", f'"{runpy.run_path(VERSION_FILE)["__version__"]}"')],
    depends=[VERSION_FILE],
    optional=MODE == "auto",
)


class build_ext(original.build_ext):  # noqa: N801 (setuptools looks the options up by this name)
    """Where the optional extension did not build, the wheel is pure, and its tag has to say so; where it has to be
    built, an error says what to do."""

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CompileError, LinkError) as error:
            raise SystemExit(
                f"error: {error}\nThe extension was not built. If there is no C compiler, install one (apt install gcc,"
                " xcode-select --install, or the Build Tools of Visual Studio), or pure Python: PHPMQ_BUILD_EXT=skip."
            ) from None
        if not os.path.exists(self.get_ext_fullpath(EXTENSION.name)):
            self.distribution.ext_modules = []
            self.get_finalized_command("bdist_wheel").root_is_pure = True


setup(
    ext_modules=[] if MODE == "skip" else [EXTENSION],
    cmdclass={"build_ext": build_ext},
    options={"build_ext": {"cython_c_in_temp": True}},
)
