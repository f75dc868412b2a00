"""Keeping secrets out of what is stored, logged and shown: by value and by their well-known forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "[secret]"
SHORTEST = 8
"""A shorter value is no secret worth its false alarms: `1`, `true`, `main`."""

_SECRET = re.compile(
    r"""
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}
    | \b(?:gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,})
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \b(?:npm_|pypi-|hf_|dop_v1_)[A-Za-z0-9_-]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | (?<=://)[^\s/:@'"]{1,256}:[^\s/@'"]{1,256}(?=@)
    | (?i:(?<=bearer\ )|(?<=basic\ )|(?<=apikey\ ))[A-Za-z0-9._~+/=-]{12,}
    """,
    re.VERBOSE,
)
_HINTS = (
    "private key-----",
    *("sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("akia", "asia", "aiza", "npm_", "pypi-", "hf_", "dop_v1_", "eyj", "://", "bearer ", "basic ", "apikey "),
)
"""Each form holds one of these; most text holds none and is passed fifty times faster."""
_NAMED = re.compile(
    r"(?ix) (?: ^|[_-] ) (?: pass(?:word|wd|phrase)? | secret | token | api[_-]?key | private[_-]?key | credentials? ) $"
    r" | ^authorization$ | ^cookie$"
)


class Scrubber:
    """Replaces secrets in texts and in data made of JSON's kinds. `values` are hidden wherever they appear."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def text(self, text: str) -> str:
        if len(text) < SHORTEST:
            return text
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        lower = text.lower()
        return _SECRET.sub(HIDDEN, text) if any(hint in lower for hint in _HINTS) else text

    def data(self, data: Any) -> Any:
        """The same data with every secret in it replaced, keys included, however deep."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.data(key): self._named(key, value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.data(value) for value in data]
        return data

    def _named(self, key: object, value: Any) -> Any:
        if isinstance(value, str) and value and isinstance(key, str) and _NAMED.search(key):
            return HIDDEN
        return self.data(value)


def of(environ: Mapping[str, str], keep: Iterable[str], given: Mapping[str, str] | None = None) -> Scrubber:
    """What hides the values that an agent type's `keep` passes on, and those `given` to it under a secret's name;
    addresses and paths among them are no secrets."""
    passed = [environ.get(name, "") for name in keep]
    named = [value for name, value in (given or {}).items() if _NAMED.search(name)]
    return Scrubber(value for value in (*passed, *named) if value and not _harmless(value))


def _harmless(value: str) -> bool:
    return value.startswith("/") or (value.startswith(("http://", "https://")) and "@" not in value)
