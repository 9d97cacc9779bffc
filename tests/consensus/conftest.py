"""The flag that rewrites expected traces."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/consensus --rewrite`: write what happens into the scenario files; review the
    diff.
    """
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite the expected traces of scenarios"
    )
