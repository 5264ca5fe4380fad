"""Tables, and blocks of pages that are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import markdown

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def test_columns_of_text_and_of_figures() -> None:
    assert markdown.rows(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | --: |\n| x | 1 |"
    assert markdown.rows(["a", "b", "c"], [], left=(0, 2)).endswith("| --- | --: | --- |")
    assert markdown.rows(["a", "b"], [], left=0).endswith("| --: | --: |")


def test_only_the_block_is_replaced() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n<!-- gpu:begin -->\n<!-- gpu:end -->\n"
    once = markdown.replace_block(text, "bench", "new")
    assert once == text.replace("old", "new")
    assert markdown.replace_block(once, "bench", "new") == once


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN}{END}" * 2])
def test_marks_must_be_there_once(text: str) -> None:
    with pytest.raises(ValueError, match="expected one <!-- bench:begin -->"):
        markdown.replace_block(text, "bench", "new")


def test_a_block_is_shown_and_put_into_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- it:begin -->\nold\n<!-- it:end -->\nbelow\n")
    markdown.show("new", "it", page)
    assert page.read_text() == "above\n<!-- it:begin -->\nnew\n<!-- it:end -->\nbelow\n"
    markdown.show("new", "it", None)
    assert capsys.readouterr().out == "new\n" * 2


def test_the_page_of_a_table_is_that_of_its_usual_file_or_the_one_given() -> None:
    usual, page, docs = Path("results/it.json"), Path("page.md"), Path("other.md")
    assert markdown.page_for(usual, None, usual=usual, page=page) == page
    assert markdown.page_for(usual, docs, usual=usual, page=page) == docs
    assert markdown.page_for(Path("mine.json"), docs, usual=usual, page=page) == docs
    assert markdown.page_for(Path("mine.json"), None, usual=usual, page=page) is None
