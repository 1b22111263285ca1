"""Pictures as blocks."""

import io

from PIL import Image

from service.cli.predicting.picture import as_blocks


def test_each_pixel_of_a_small_picture_is_two_characters() -> None:
    picture = Image.new("L", (3, 2))
    picture.putpixel((0, 0), 255)
    picture.putpixel((2, 1), 128)
    assert as_blocks(_png(picture)) == "██    \n    ▒▒"


def test_a_wide_picture_is_scaled_down_to_the_columns_in_proportion() -> None:
    rows = as_blocks(_png(Image.new("RGB", (400, 200), "white")), columns=20).split("\n")
    assert rows == ["█" * 20] * 5


def test_a_very_wide_picture_has_at_least_one_row() -> None:
    assert as_blocks(_png(Image.new("L", (1000, 1), 255)), columns=10) == "█" * 10


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
