import io
import os
import re

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def read(*path):
    with io.open(os.path.join(HERE, *path), encoding="utf-8") as source:
        return source.read()


def version():
    """kiel's version, read and not imported: what kiel imports may not be installed yet."""
    return re.search(r'^__version__ = "([^"]+)"', read("kiel", "__init__.py"), re.MULTILINE).group(1)


TESTING = ["confluent-kafka>=2.6; python_version >= '3'"]

setup(
    name="kiel",
    version=version(),
    description="A Kafka client for Tornado applications",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["kiel", "kiel.*"]),
    python_requires=">=2.7,!=3.0.*,!=3.1.*,!=3.2.*,!=3.3.*,!=3.4.*,!=3.5.*,!=3.6.*,!=3.7.*",
    install_requires=[
        "six",
        "tornado>=5.1; python_version >= '3'",
        "tornado>=5.1,<6; python_version < '3'",
        "kazoo>=2.8; python_version >= '3'",
        "kazoo>=2.8,<2.10; python_version < '3'",
        "python-snappy; python_version >= '3'",
        "crc32c; python_version >= '3'",
    ],
    extras_require={
        # Python 2.7 has no wheel of it: building it takes a compiler and the snappy library's headers.
        "snappy": ["python-snappy<0.7; python_version < '3'"],
        "testing": TESTING,
        # The flights themselves come with examples/requirements.txt.
        "demo": TESTING + ["tqdm"],
        "docs": ["sphinx>=7; python_version >= '3'"],
    },
    entry_points={"pytest11": ["kiel = kiel.testing.pytest_plugin"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Framework :: Pytest",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 2.7",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.8",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Networking",
    ],
)
