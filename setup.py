"""Build the compiled kernels; everything else about the package is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Extension(
    "shiplog.logformat._kernels",
    ["shiplog/logformat/_kernels.pyx"],
    depends=["shiplog/logformat/_crc32c.h"],
    extra_compile_args=["-O3"],
)

DISK_THREADS = Extension("shiplog.runtime._disk_threads", ["shiplog/runtime/_disk_threads.pyx"])

setup(ext_modules=cythonize([KERNELS, DISK_THREADS], language_level=3))
