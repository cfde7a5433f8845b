"""Chromium, and what tests of the explorer's pages do with it."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason=f"no browser (none of {', '.join(NAMES)}): apt-get install chromium"
)
#: finds what a page lacks in accessibility
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
READY = "#page[aria-busy=false]"
# Milliseconds, of a machine that does much else.
PATIENCE = 20_000


@contextmanager
def launched():
    """Start Chromium."""
    # The sandbox of Chromium does not start for root, as whom containers run.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def watched(context, own, *, tolerated=None):
    """Open a page that asks for nothing but what begins with `own`, is broken into by nobody, and has no errors.

    Errors that the console tells of with the words `tolerated` are expected.
    """
    page = context.new_page()
    page.set_viewport_size({"width": 1600, "height": 1000})
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    assert [url for url in asked if not url.startswith((*own, "data:,", "about:"))] == []
    assert page.evaluate("window.hit") is None
    assert [one for one in errors if tolerated is None or tolerated not in one] == []
    page.close()


def settle(page):
    """Wait until what was asked for is shown; that of an address begins a moment later."""
    page.wait_for_timeout(30)
    page.wait_for_selector(READY)


def faults_of(page):
    """Run axe, which the page has loaded, on what is shown."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


#: widths of a phone, a tablet and a laptop, in which pages are whole
WIDTHS = (390, 768, 1280)
# What sticks out of the window, or of a box that hides it; what is scrolled sideways is inside of a region for that.
CUT = """
() => [...document.querySelectorAll("body *")].filter((one) => {
  const box = one.getBoundingClientRect(), style = getComputedStyle(one), own = one.closest(".scroll, .why");
  if (!box.width || !box.height || style.clipPath !== "none" || (own && own !== one)) return false;
  const hides = style.overflowX === "hidden" || style.overflowX === "clip";
  return box.left < -1 || box.right > innerWidth + 1 || (hides && one.scrollWidth > one.clientWidth + 1);
}).map((one) => one.outerHTML.slice(0, 120))
"""
# Scrolled tables whose first column moves out of view, or leaves no room for the others.
LOST = """
() => [...document.querySelectorAll(".scroll:has(th[scope=row])")].filter((one) => {
  if (!one.matches("main > section *") || one.scrollWidth <= one.clientWidth) return false;
  one.scrollLeft = one.scrollWidth;
  const [frame, first] = [one, one.querySelector("tbody th")].map((each) => each.getBoundingClientRect());
  one.scrollLeft = 0;
  return first.left < frame.left - 1 || first.width > 0.6 * frame.width;
}).map((one) => `first column of ${one.getAttribute("aria-label").slice(0, 80)}`)
"""


def cut_in(path):
    """List what is cut in the page of a file, at all widths."""
    with launched() as browser:
        page = browser.new_page()
        page.goto(path.as_uri())
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        return [(width, one) for width in WIDTHS for one in cut_of(page, width)]


def cut_of(page, width):
    """List what is cut or hidden when a page is as wide as this; the first column of a scrolled table stays in view."""
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(50)
    cut = page.evaluate(CUT) + page.evaluate(LOST)
    if page.evaluate("document.documentElement.scrollWidth") > width:
        cut.append("the page is wider than the window")
    return cut
