"""The page of disagreements is one file, and names in it cannot contain markup."""

from __future__ import annotations

from pathlib import Path

from service.core.verification.scoring import share_of
from service.evaluate.page import Picture, write_page

METRICS = {"top1": share_of([True, False])}


def page_text(tmp_path: Path, *pictures: Picture, reference: str | None = None) -> str:
    write_page(tmp_path / "page.html", ["model: <b>"], METRICS, reference, METRICS if reference else {}, pictures)
    return (tmp_path / "page.html").read_text()


def test_pictures_are_in_the_file(tmp_path: Path) -> None:
    page = page_text(tmp_path, Picture("a.png", b"jpeg", "cat", ["dog"], ["cat"], 3.0, None), reference="LiteRT 2")
    assert '<img alt="" src="data:image/jpeg;base64,anBlZw==">' in page
    assert "LiteRT 2" in page
    assert "<dt>Octet</dt><dd class=wrong>" in page
    assert "<dt>the reference</dt><dd class=right>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_equal_results_are_shown_once(tmp_path: Path) -> None:
    page = page_text(tmp_path, Picture("1", None, "cat", ["dog", "cat"], ["dog", "cat"], 0.0, None))
    assert page.count("<dt>") == 3
    assert "<dt>Octet and the reference</dt><dd class=wrong>" in page


def test_names_are_escaped(tmp_path: Path) -> None:
    page = page_text(tmp_path, Picture("<script>.png", None, '"><i>', ["<u>"], [], None, 0.5))
    assert "<script>" not in page
    assert "<i>" not in page
    assert "<u>" not in page
    assert "model: &lt;b&gt;" in page
