"""Build the compiled kernels; everything else about the package is in pyproject.toml."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Extension(
    "samelog.format._kernels",
    ["samelog/format/_kernels.pyx"],
    depends=["samelog/format/_crc32c.h"],
    extra_compile_args=["-O3"],
)

DISK_THREADS = Extension(
    "samelog.runtime.disk._disk_threads", ["samelog/runtime/disk/_disk_threads.pyx"]
)

TLS = Extension(
    "samelog.runtime.network._tls",
    ["samelog/runtime/network/_tls.pyx"],
    depends=["samelog/runtime/network/_openssl.h"],
    extra_compile_args=["-O3"],
    libraries=["dl"] if sys.platform == "linux" else [],
)

KAFKA_PRIMITIVES = Extension(
    "samelog.kafka.codec.primitives", ["samelog/kafka/codec/primitives.pyx"]
)

setup(ext_modules=cythonize([KERNELS, DISK_THREADS, TLS, KAFKA_PRIMITIVES], language_level=3))
