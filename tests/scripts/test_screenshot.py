from PIL import Image

from scripts import screenshot
from tests.support.browser import needs_browser


@needs_browser
def test_a_page_becomes_a_picture(tmp_path):
    (tmp_path / "a b.html").write_text("<body style='background: #f00'><h1>Title</h1></body>")
    output = tmp_path / "page.png"
    given = ["--output", str(output), "--width", "640", "--height", "480"]
    assert screenshot.main(["--page", f"{tmp_path}/a b.html#part", *given]) == 0
    with Image.open(output) as picture:
        assert picture.size == (640, 480)
        assert picture.convert("RGB").getpixel((630, 470)) == (255, 0, 0)


def test_a_page_that_is_not_there_is_told(tmp_path, capsys):
    assert screenshot.main(["--page", str(tmp_path / "none.html"), "--output", str(tmp_path / "x.png")]) == 1
    assert capsys.readouterr().err.startswith("found no ")
