"""A picture of attention, as a PNG file: a column for each piece of the sentence, a row for each piece of its
translation, the darker the more the row's piece looks at the column's. Needs Pillow, which has a font."""

import pieces
from PIL import Image, ImageDraw, ImageFont

CELL, MARGIN, SIZE = 30, 10, 16
PAPER, INK, LINE = (255, 255, 255), (20, 20, 20), (225, 225, 225)
MOST = (16, 70, 140)  # the color of all of the attention


def write_attention(path, read, written, attention):
    """`read` and `written` are pieces, as bytes, filled up after their ends; `attention` has their shape."""
    columns, rows = (labels(found) for found in (read, written))
    font = ImageFont.load_default(SIZE)
    left, top = (max(round(font.getlength(text)) for text in texts) + 2 * MARGIN for texts in (rows, columns))
    size = (left + CELL * len(columns) + MARGIN, top + CELL * len(rows) + MARGIN)
    picture = Image.new("RGB", size, PAPER)
    for place, text in enumerate(columns):
        upright = Image.new("RGB", (top - MARGIN, CELL), PAPER)
        ImageDraw.Draw(upright).text((0, CELL // 2), text, INK, font, anchor="lm")
        picture.paste(upright.rotate(90, expand=True), (left + CELL * place, MARGIN))
    drawn = ImageDraw.Draw(picture)
    for row, text in enumerate(rows):
        y = top + CELL * row
        drawn.text((left - MARGIN, y + CELL // 2), text, INK, font, anchor="rm")
        for column, share in enumerate(attention[row][: len(columns)]):
            x = left + CELL * column
            drawn.rectangle((x, y, x + CELL, y + CELL), shade(float(share)), LINE)
    partial = path.with_name(path.name + ".partial")
    picture.save(partial, "PNG")
    partial.rename(path)


def labels(found):
    """Pieces up to the end, as people write them: those that continue a word begin with a dash."""
    texts = [piece.decode() for piece in found]
    if pieces.SPECIAL[pieces.END] in texts:
        texts = texts[: texts.index(pieces.SPECIAL[pieces.END]) + 1]
    return [text.replace(pieces.GAP, "") or " " if text[0] in (pieces.GAP, "[") else f"-{text}" for text in texts]


def shade(share):
    return tuple(round(paper + (most - paper) * share) for paper, most in zip(PAPER, MOST))
