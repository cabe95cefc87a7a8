"""The page in a real browser, which has to be Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from facts import EMPTY, FACTS, HOSTILE, SHOWN, hostile_facts
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from phpmq.spark.report import Facts, render

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "this takes Chromium"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium)


class Visit:
    """A page that was opened, and what it did that it should not do."""

    def __init__(self, page: Page, file: Path, facts: Facts) -> None:
        self.page = page
        self.wrong: list[str] = []
        file.write_text(render(facts), encoding="utf-8")
        page.on("console", lambda message: self.wrong.append(message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.wrong.extend({request.url} - {file.as_uri()}))
        page.goto(file.as_uri())
        if facts.queues:
            expect(page.locator(".chart svg")).to_have_count(3)

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def column(self, table: str, number: int) -> list[str]:
        """The texts of a column, from above."""
        cells = self.page.locator(f"table:has(#{table}) tbody tr > :nth-child({number})")
        return [text.strip().replace("\xa0", " ") for text in cells.all_inner_texts()]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    yield page
    page.close()


def test_nothing_goes_wrong_and_nothing_is_loaded(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", FACTS)
    page.mouse.wheel(0, 10_000)
    page.wait_for_timeout(500)
    assert not visit.wrong


def test_an_empty_report(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", EMPTY)
    expect(page.get_by_text("There are no messages.")).to_be_visible()
    assert page.locator("svg").count() == 0
    assert not visit.wrong


def test_sorting(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", FACTS)

    def heads(state: str) -> list[str]:
        return page.locator(f"#queues th[aria-sort={state}]").all_text_contents()

    dispatched = page.locator("#queues th[aria-sort]").nth(3)
    assert len(heads("none")) == 18
    dispatched.click()
    assert visit.column("queues-caption", 4) == ["0", "50", "4,000"]
    assert [head.replace("\u00ad", "") for head in heads("ascending")] == ["Dispatched"]
    dispatched.click()
    assert visit.column("queues-caption", 4) == ["4,000", "50", "0"]
    assert [head.replace("\u00ad", "") for head in heads("descending")] == ["Dispatched"]
    page.locator("#queues th[aria-sort] button").first.press("Enter")
    assert visit.column("queues-caption", 1) == ["mail", "orders", "unused"]
    assert (heads("ascending"), heads("descending"), len(heads("none"))) == (["Queue"], [], 17)
    page.locator("#queues th[aria-sort] button").first.press("Space")
    assert visit.column("queues-caption", 1) == ["unused", "orders", "mail"]
    assert page.locator("#queues tfoot th").inner_text() == "All queues"
    assert not visit.wrong


def test_sorting_goes_by_what_is_shortened_and_leaves_the_unknown_behind(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", FACTS)
    size, ttl = (page.locator("#queues th[aria-sort]").nth(column) for column in (11, 15))
    size.click()
    assert visit.column("queues-caption", 12) == ["0 B", "987 B", "4.8 MiB"]
    size.click()
    assert visit.column("queues-caption", 12) == ["4.8 MiB", "987 B", "0 B"]
    ttl.click()
    assert visit.column("queues-caption", 16) == ["1 s", "1 min", "—"]
    ttl.click()
    assert visit.column("queues-caption", 16) == ["1 min", "1 s", "—"]


def test_sorting_other_tables(page: Page, tmp_path: Path) -> None:
    damage = [row._replace(path=f"/part-{number}") for number, row in zip((10, 9), FACTS.damage, strict=True)]
    visit = Visit(page, tmp_path / "report.html", FACTS._replace(damage=damage))
    page.get_by_role("button", name="Capture").last.click()
    assert visit.column("damage-caption", 1) == ["/part-9", "/part-10"]
    page.get_by_text("The sizes as a table").click()
    page.get_by_role("button", name="Size").click()
    page.get_by_role("button", name="Size").click()
    assert visit.column("sizes-caption", 2) == ["2,000", "6,000", "5", "75", "5"]
    assert visit.column("queues-caption", 1) == ["orders", "mail", "unused"]


def test_charts_show_the_numbers(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", FACTS)
    for chart, label in (
        ("outcome-chart", "orders: 60 dead-lettered (1.50\xa0%)"),
        ("outcome-chart", "orders: 3,700 acknowledged (92.50\xa0%)"),
        ("outcome-chart", "mail: 49 acknowledged (98.00\xa0%)"),
        ("size-chart", "1,024 to 2,047 bytes: 2,000 contents"),
        ("queue-size-chart", "mail, 4 to 7 bytes: 75 contents"),
    ):
        assert page.locator(f"#{chart} .mark-rect path[aria-label='{label}']").count() == 1
    texts = page.locator("#outcome-chart text").all_text_contents()
    for text in ("orders", "mail", "4,000", "50", "100\xa0%", "dead-lettered"):
        assert text in texts
    assert {"0\xa0B", "1\xa0KiB", "74.21\xa0%"} <= set(page.locator("#size-chart text").all_text_contents())
    bars = [mark.bounding_box() for mark in page.locator("#outcome-chart .mark-rect path[aria-label^='orders:']").all()]
    widths = [box["width"] for box in bars if box]
    assert [round(width / sum(widths), 3) for width in widths] == [0.015, 0.01, 0.05, 0.925]
    page.locator("#outcome-chart path[aria-label^='orders: 3,700']").hover()
    expect(page.locator("#vg-tooltip-element")).to_be_visible()
    told = page.locator("#vg-tooltip-element td").all_inner_texts()
    assert told == ["queue", "orders", "outcome", "acknowledged", "messages", "3,700 of 4,000 (92.50\xa0%)"]
    assert page.locator("details[title], .vega-actions").count() == 0
    assert not visit.wrong


def test_names_are_text_and_do_nothing(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", hostile_facts())
    names = [*HOSTILE, *SHOWN.values()]
    assert page.locator("#queues tbody th").all_text_contents() == names
    for chart in ("outcome-chart", "queue-size-chart"):
        assert set(names) <= set(page.locator(f"#{chart} text").all_text_contents())
    for name in names:
        page.locator("#outcome-chart .mark-rect path").nth(4 * names.index(name)).hover()
        expect(page.locator("#vg-tooltip-element .value").first).to_have_text(name)
    page.locator("#queues th button").first.click()
    assert sorted(visit.column("queues-caption", 1)) == sorted(names)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert not visit.wrong


def test_a_script_that_is_not_of_the_page_does_not_run(page: Page, tmp_path: Path) -> None:
    visit = Visit(page, tmp_path / "report.html", FACTS)
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src='data:,' onerror='window.ran = true'>");
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert visit.wrong  # the browser says what it refused


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 29)")])
@pytest.mark.parametrize("facts", [FACTS, hostile_facts(), EMPTY], ids=["facts", "hostile", "empty"])
def test_a_phone(browser: Browser, tmp_path: Path, scheme: str, background: str, facts: Facts) -> None:
    """Nothing but tables scrolls sideways."""
    page = browser.new_page(
        viewport={"width": 390, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
        is_mobile=True,
        has_touch=True,
    )
    visit = Visit(page, tmp_path / "report.html", facts)
    assert page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]") == [390, 390]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
    for chart in page.locator(".chart").all():
        size = chart.locator("svg").bounding_box()
        assert size
        assert size["x"] + size["width"] <= 390
    assert not visit.wrong
    page.close()
