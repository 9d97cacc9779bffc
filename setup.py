"""Build the compiled kernels; everything else about the package is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Extension(
    "shiplog.logformat._kernels",
    ["shiplog/logformat/_kernels.pyx"],
    depends=["shiplog/logformat/_crc32c.h"],
    extra_compile_args=["-O3"],
)

setup(ext_modules=cythonize([KERNELS], language_level=3))
