"""Steps in the explorer's pages, each until what follows is shown."""

from tests.support.browser import settle


def click(place):
    place.click()
    settle(place.page)


def choose(page, selector, value):
    page.select_option(selector, value)
    settle(page)


def go_back(page):
    page.go_back()
    settle(page)


def find(page, text):
    """Filter the queries of the list."""
    page.fill("#find", text)
    settle(page)
