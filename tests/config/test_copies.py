"""Where segments are copied to: what a node's configuration may say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from samelog.config.values import ConfigError, check_copy_url
from samelog.format.errors import InvalidName
from tests.config.test_load import NODE, Writer, write

__all__ = ["write"]


def archive(lines: str) -> str:
    return f"{NODE}[archive]\n{lines}\n"


def test_a_directory_or_a_url(write: Writer, tmp_path: Path) -> None:
    config = load_node(write(archive('copy_to = "cold"'))).archive
    assert (config.copy_to, config.copy_formats) == (str(tmp_path / "cold"), ("segments",))
    url = "s3://bucket/a?region=eu-central-1"
    node = load_node(write(archive(f'copy_to = "{url}"\ncopy_formats = ["parquet", "segments"]')))
    assert (node.archive.copy_to, node.archive.copy_formats) == (url, ("parquet", "segments"))
    assert load_node(write(to_toml(node))) == node


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('copy_to = "data/cold"', "is in the data directory"),
        ('copy_to = "data"', "is in the data directory"),
        ('copy_to = "s3://KEY:SECRET@bucket/x"', "it holds credentials"),
        ('copy_to = "s3://bucket/x?secret_key=1"', "it holds credentials"),
        ('copy_to = "abfs://c/x?account_key=1"', "it holds credentials"),
        ('copy_to = "s3://"', "names no bucket"),
        ('copy_to = "S 3://bucket"', "does not begin with a scheme"),
        ('copy_to = "s3://[bucket"', "is not a URL"),
        ('copy_formats = ["parquet"]', "has no meaning without copy_to"),
        ('copy_to = "a"\ncopy_formats = ["csv"]', "'csv' is none of segments, parquet"),
        ('copy_to = "a"\ncopy_formats = ["parquet", "parquet"]', "is there twice"),
        ('copy_from = "a"', "unknown key"),
    ],
)
def test_what_cannot_be_used_is_said(write: Writer, lines: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_node(write(archive(lines)))


@given(st.text() | st.text().map(lambda text: f"s3://{text}"))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    with suppress(InvalidName):
        check_copy_url(text)
