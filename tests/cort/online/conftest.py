"""The explorer's page as the tests in a browser serve it."""

import pytest

from cort import explorer
from tests.support.browser import PATIENCE, launched
from tests.support.explorer import write_experiment


@pytest.fixture(scope="package")
def data(tmp_path_factory):
    """Folder of the data of a page of an experiment."""
    folder = tmp_path_factory.mktemp("page")
    assert explorer.main(write_experiment(folder)) == 0
    return folder / "page" / "data"


@pytest.fixture(scope="module")
def context():
    """A browser, which a file of tests shares."""
    with launched() as browser:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        yield context
