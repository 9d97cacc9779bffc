"""Build the compiled kernels, and the page of a package index; the rest is in pyproject.toml."""

import re
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

RELATIVE_LINK = re.compile(r"\[([^]]+)\]\((?!https?://)([^)#]+)[^)]*\)")
"""Leads nowhere from a package index: what is linked comes with the sdist."""


def page() -> str:
    """README.md, which names pages instead of linking them."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return RELATIVE_LINK.sub(lambda link: named(*link.groups()), text)


def named(text: str, path: str) -> str:
    """A link's text, and where it leads if that does not say it."""
    return f"`{path}`" if text == path else f"{text} (`{path}`)"


def kernel(name: str, *depends: str, libraries: tuple[str, ...] = ()) -> Extension:
    """A compiled module beside the source that is called like it; without symbols of debuggers."""
    return Extension(
        name,
        [name.replace(".", "/") + ".pyx"],
        depends=list(depends),
        extra_compile_args=["-O3", "-g0"],
        extra_link_args=["-Wl,-s"] if sys.platform == "linux" else [],
        libraries=list(libraries),
    )


KERNELS = [
    kernel("samelog.format._kernels", "samelog/format/_crc32c.h"),
    kernel("samelog.runtime.disk._disk_threads"),
    kernel(
        "samelog.runtime.network._tls",
        "samelog/runtime/network/_openssl.h",
        libraries=("dl",) if sys.platform == "linux" else (),
    ),
    kernel("samelog.kafka.codec.primitives"),
    kernel("samelog.store.keys._key_pages"),
]

if __name__ == "__main__":
    setup(
        ext_modules=cythonize(KERNELS, language_level=3),
        long_description=page(),
        long_description_content_type="text/markdown",
    )
