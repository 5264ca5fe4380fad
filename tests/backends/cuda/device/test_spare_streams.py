"""Streams to record graphs on are used again: the driver never gets one back."""

from __future__ import annotations

from typing import Any

import pytest

from akx.backends.cuda.device import streams


def test_streams_are_used_again_and_never_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Stream:
        def __init__(self, *, blocking: bool) -> None:
            assert not blocking
            made.append(self)

    monkeypatch.setattr(streams, "Stream", Stream)
    monkeypatch.setattr(streams, "_spare", [])
    for _ in range(3):
        with streams.spare_stream() as one, streams.spare_stream() as two, streams.spare_stream() as three:
            assert len({id(one), id(two), id(three)}) == 3
        with streams.spare_stream() as again:
            assert again in made
    assert len(made) == 3


def test_a_stream_on_which_something_failed_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "Stream", lambda *, blocking: object())
    monkeypatch.setattr(streams, "_spare", [])
    with pytest.raises(KeyError), streams.spare_stream() as spoilt:
        raise KeyError
    with streams.spare_stream() as other:
        assert other is not spoilt
