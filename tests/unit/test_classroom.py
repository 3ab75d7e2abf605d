"""Seeds of a class: fixed by secret and path, and by nothing else."""

from __future__ import annotations

import hashlib
import hmac
import itertools

import torch

from privfl_lite.teach import classroom


def test_digest_is_hmac_of_parts_with_lengths():
    message = b"\0\0\0\x08read-off\0\0\0\x02q1"
    expected = hmac.new(b"blue", message, hashlib.sha256).digest()
    assert classroom.digest("blue", "read-off", "q1") == expected
    assert classroom.seed("blue", "read-off", "q1") == int.from_bytes(expected[:8], "big") // 2


def test_seeds_differ_by_secret_and_by_path():
    paths = [(), ("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("c", "ab"), ("λ",)]
    seeds = [classroom.seed(s, *p) for s, p in itertools.product(("blue", "green", ""), paths)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)
    torch.Generator().manual_seed(max(seeds))  # fits


def test_secret_is_the_environment_s(monkeypatch):
    monkeypatch.setenv(classroom.VARIABLE, "blue")
    assert classroom.secret() == "blue"
    for value in ("", None):
        monkeypatch.delenv(classroom.VARIABLE) if value is None else monkeypatch.setenv(
            classroom.VARIABLE, value
        )
        assert classroom.secret() == classroom.PUBLIC
