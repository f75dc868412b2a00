"""Names that are made from what people wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

MOST_SLUG = 50


def slug(text: str, instead: str = "task") -> str:
    """Letters, digits, `_` and `-` of a text, at most 50; never empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-").lower()
    return words[:MOST_SLUG].strip("-") or instead


def branch(template: str, values: Mapping[str, str]) -> str:
    """A branch's name from a template like `{agent}/{task}/{id}`; braces without a value stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)


def folder(branch_name: str) -> str:
    """The branch's name as one folder's name."""
    return branch_name.replace("/", "-")
