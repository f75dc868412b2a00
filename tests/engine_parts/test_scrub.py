"""That secrets do not get into what is stored, logged or shown, and that all else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefleet.engine import scrub

B64 = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
FORMS = {
    "anthropic": "sk-ant-api03-" + B64,
    "openai": "sk-proj-" + B64,
    "stripe": "rk-live-" + B64,
    "github": "ghp_" + B64,
    "github app": "ghs_" + B64,
    "github fine": "github_pat_" + B64,
    "gitlab": "glpat-" + B64,
    "slack": "xoxb-1234567890-" + B64,
    "aws": "AKIA" + "ABCDEFGHIJKLMNOP",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "npm": "npm_" + B64,
    "pypi": "pypi-" + B64,
    "hugging face": "hf_" + B64,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "bearer": "Authorization: Bearer " + B64,
    "basic": "authorization: basic " + B64,
    "api key": "Authorization: ApiKey " + B64 + "==",
    "url": "https://me:hunter2hunter2@host/x",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIE" + B64 + "\n-----END RSA PRIVATE KEY-----",
    "half a pem": "-----BEGIN PRIVATE KEY-----\nMIIE" + B64,
}
SECRET_PARTS = (B64, "ABCDEFGHIJKLMNOP", "SyA1234567890", "dozjgNryP4J3", "hunter2")


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_secrets_of_a_known_form_are_hidden(text: str) -> None:
    said = scrub.Scrubber().text(f"before {text} after")
    assert scrub.HIDDEN in said
    assert not any(part in said for part in SECRET_PARTS)
    assert said.startswith("before ")


def test_a_kept_value_is_hidden_wherever_it_appears() -> None:
    scrubber = scrub.of({"MY_KEY": "correct horse battery", "OTHER": "not kept at all"}, ["MY_KEY", "MISSING"])
    assert scrubber.text("x=correct horse battery;") == f"x={scrub.HIDDEN};"
    assert scrubber.text("not kept at all") == "not kept at all"


def test_a_value_with_special_characters_is_hidden_too() -> None:
    value = "a+b (c) #d\n$e[f]|g"
    assert scrub.Scrubber([value]).text(f"<{value}>") == f"<{scrub.HIDDEN}>"


def test_the_longer_of_two_alike_values_is_hidden_whole() -> None:
    assert scrub.Scrubber(["password1", "password1234"]).text("password1234") == scrub.HIDDEN


def test_short_values_addresses_and_paths_are_no_secrets() -> None:
    environ = {"A": "1", "B": "/run/ssh/agent.sock", "C": "https://gateway.example/v1"}
    scrubber = scrub.of(environ, environ)
    text = "1 of 10 went to https://gateway.example/v1 by /run/ssh/agent.sock"
    assert scrubber.text(text) == text


def test_an_address_with_a_password_in_it_is_one() -> None:
    assert "s3cr3tpass" not in scrub.of({"C": "https://me:s3cr3tpass@host/"}, ["C"]).text(
        "to https://me:s3cr3tpass@host/"
    )


@pytest.mark.parametrize(
    "name", ["password", "api_key", "apiKey", "AWS_SECRET", "GITHUB_TOKEN", "authorization", "x-api-key", "passphrase"]
)
def test_what_is_called_a_secret_is_hidden_whatever_it_looks_like(name: str) -> None:
    assert scrub.Scrubber().data({"env": [{name: "hunter2"}]}) == {"env": [{name: scrub.HIDDEN}]}


def test_numbers_and_other_names_stay() -> None:
    data = {"tokens": 12, "input": {"cached_tokens": 3, "token": None}, "author": "me", "keys": ["a", 1.5, True]}
    assert scrub.Scrubber(["something else"]).data(data) == data


def test_secrets_in_lists_and_keys_are_hidden() -> None:
    said = scrub.Scrubber(["topsecretvalue"]).data({"argv": ["--key", "topsecretvalue"], "topsecretvalue": ("x",)})
    assert "topsecretvalue" not in json.dumps(said)


def test_ordinary_source_is_left_alone() -> None:
    source = Path(scrub.__file__).with_name("environment.py").read_text()
    assert scrub.Scrubber(["something else"]).text(source) == source


@settings(deadline=None, max_examples=200)
@given(before=st.text(), after=st.text(), value=st.text(min_size=scrub.SHORTEST, max_size=40))
def test_no_text_around_a_value_saves_it(before: str, after: str, value: str) -> None:
    said = scrub.Scrubber([value]).text(before + value + after)
    assert value not in said or value in scrub.HIDDEN
