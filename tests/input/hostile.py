"""Hostile strings of our own making, in families: what breaks quoting, encodings, terminals, limits, or readers' trust.

Each family is a function that names its danger. Nothing here is specific to Perdure: any field that takes a text
should give the same verdict on each of them, whatever database stands behind it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from itertools import product

Family = Callable[[], Iterator[str]]


def sql() -> Iterator[str]:
    """Text that ends a literal, a statement or a comment, or asks the server for something of its own."""
    for quote, then in product(
        ("'", '"', "`", "''", "\\'", "$$", "$q$"), ("", " OR 1=1 --", "; DROP TABLE process; --")
    ):
        yield f"{quote}{then}"
    yield from (
        "');--", "1);--", "/*", "*/", "/* */ 1", "--", "-- x\n1", "#", ";", ";;", "a;b", "\\", "\\\\", "a\\", "%",
        "_", "%%", "a%", "_a", "[a-z]", "\\%", "*", "?", "?1", ":x", "@x", "$1", "$99", "%s", "%(x)s", "NULL", "null",
        "DEFAULT", "\\N", "\\.", "E'\\x00'", "U&'\\0000'", "x'00'", "::text", "CAST(1 AS text)",
        "1 UNION SELECT input FROM process", "1; SELECT pg_sleep(9)", "1; ATTACH 'x' AS y", "PRAGMA foreign_keys=0",
        "COPY process TO PROGRAM 'id'", "SET search_path=x", "load_extension('x')", "{1,2}", "(1,2)", "{NULL}",
        "ROW(1)",
    )  # fmt: skip


def markup() -> Iterator[str]:
    """Text that becomes an element, an attribute, an entity or a script where it is not escaped."""
    for tag in (
        "script",
        "img src=x onerror=alert(1)",
        "svg/onload=alert(1)",
        "iframe",
        "b",
        "!--",
        "?php",
        "![CDATA[",
    ):
        yield f"<{tag}>"
        yield f'"><{tag}>'
    yield from (
        "<script>alert(1)</script>", "</script><script>alert(1)//", "<a href='javascript:alert(1)'>x</a>", "]]>",
        "javascript:alert(1)", "data:text/html,<b>x", "&lt;", "&amp;amp;", "&#0;", "&#x3c;", "&nosuch;", "<", ">",
        "&", "'-alert(1)-'", "\\x3cscript\\x3e", "\\u003cb\\u003e", "onload=alert(1)",
        '" autofocus onfocus=alert(1) x="', "[b]bold[/b]", "[red]", "[/]", "[link=http://x]y[/link]", "[bold red]x",
        "\\[x]", ":warning:", "**b**", "# h",
    )  # fmt: skip


def paths() -> Iterator[str]:
    """Text that leaves its folder, names a device, or is no name on some system."""
    for up in ("../", "..\\", "%2e%2e/", "..%2f", "....//", "..;/"):
        yield f"{up}{up}etc/passwd"
    yield from (
        "/etc/passwd", "/dev/null", "/proc/self/environ", "//host/share", "\\\\host\\share", "C:\\con", "file:///x",
        "~", "~root", ".", "..", "...", "/", "//", "a/", "/a", "a//b", "./a", "a/./b", "a/../b", "con", "NUL",
        "aux.txt", "a:b", "a:b:c", ":", "::", "a|b", "a*b", "-", "--", "--help", "-rf", "@file", "+x", "=", "a=b",
        "=b", "name=",
    )  # fmt: skip


def shell() -> Iterator[str]:
    """Text that a shell, an environment or an option parser would act on."""
    for opening, closing in (
        ("$(", ")"),
        ("`", "`"),
        ("${", "}"),
        ("<(", ")"),
        ("; ", ""),
        ("| ", ""),
        ("&& ", ""),
        ("& ", ""),
    ):
        yield f"{opening}id{closing}"
    yield from (
        "$HOME", "$PATH", "!!", "!$", "> x", "< x", "2>&1", "a\\ b", "'a b'", '"a b"', "a&b", "{a,b}", "[!a]",
        "() { :;}; id", "--url=sqlite:///x", "--json", "-v", "-1", "--", "%PATH%", "^&", "LD_PRELOAD=x", "IFS=,",
    )  # fmt: skip


def formats() -> Iterator[str]:
    """Text that a formatter, a template or an evaluator would expand."""
    yield from (
        "%d", "%n", "%x%x%x", "%1000000d", "%99999999s", "%", "%%s", "%c", "%(name)s", "{}", "{0}", "{x}", "{x!r}",
        "{:>9}", "{0.__class__.__init__.__globals__}", "{{7*7}}", "{% raw %}", "{# x #}", "${7*7}", "#{7*7}",
        "<%= 7*7 %>", "$x", "${x}", "@{x}", "~{x}", "{", "}", "{{", "}}", "{}{", "__import__('os').system('id')",
        "eval(1)", "lambda: 0", "${jndi:ldap://x/y}", "{{constructor.constructor('x')()}}", "__proto__",
        "constructor", "prototype", "__class__",
    )  # fmt: skip


def tables() -> Iterator[str]:
    """Text that a spreadsheet would compute, or that ends a cell or a line of one."""
    yield from (
        "=1+1", "+1+1", "-1+1", "@SUM(1)", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x")', "\t=1+1", "'=1+1", "a,b",
        'a"b', "a;b", "a\tb", '"a","b"', "a\r\nb", "sep=;", "0001", "1/2", "1E5", "=", "@",
    )  # fmt: skip


def like_json() -> Iterator[str]:
    """Text that is JSON, nearly JSON, or what only some readers call JSON."""
    yield from (
        "{}", "[]", '""', '"', '"a', "[", "]", "{", "[1,]", "{1:2}", '{"a":1,"a":2}', '{"a"}', "[1 2]", "nul", "true",
        "false", "NaN", "Infinity", "-Infinity", "1e400", "-0", "-0.0", "01", "1.", ".5", "0x10", "1_000", "+1",
        "1e5", "\\u0000", "\\ud800", '"\\u0000"', '"\\ud800"', '"\\ud800\\udc00"', '"\\x41"', "'a'",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", "[" * 300, '{"a":' * 90, "// x", '{"__proto__":{}}', '{"":0}',
        '{"type":"Ready"}', "undefined", "None", "True", "a: b", "- a", "&a *a", "!!python/object",
    )  # fmt: skip


def numbers() -> Iterator[str]:
    """Text that looks like a number, or counts too far."""
    yield from (
        "0", "-1", "00", "1.0", "1,5", "1 000", "1e3", "1e-400", "0b1", "0o7", "0xFF", "½", "Ⅷ", "١٢٣", "१२३", "１２３",
        "²", "٫5",
    )  # fmt: skip
    for bits in (31, 32, 53, 63, 64, 128):
        yield str(1 << bits)
        yield str(-(1 << bits) - 1)
    yield from ("9" * 255, "9" * 4301, "0." + "3" * 200, "1e999999999", "-nan", "inf", "∞", "1/0", "0/0")


def dates() -> Iterator[str]:
    """Text that looks like a time, a duration or a zone."""
    yield from (
        "1970-01-01", "0000-00-00", "9999-12-31T23:59:59.999999Z", "10000-01-01", "-0001-01-01", "2023-02-29",
        "2016-12-31T23:59:60Z", "now", "today", "epoch", "infinity", "-infinity", "tomorrow", "24:00:00", "1d", "-5m",
        "nan s", "inf h", "1e300d", "٣h", "P1Y", "Europe/Riga", "Etc/GMT+25", "+99:99",
        "1900-01-01T00:00:00+00:00:01", "12/31/99",
    )  # fmt: skip


def identities() -> Iterator[str]:
    """Text that looks like an id, a URL, an address, or a name of ours."""
    yield from (
        "00000000-0000-0000-0000-000000000000", "f" * 32, "{" + "f" * 32 + "}", "urn:uuid:" + "f" * 32,
        "0x" + "f" * 30, "٠" * 32, "sqlite:///x.db", "sqlite://:memory:", "postgresql://a:b@c/d", "http://[::1",
        "http://x:99999", "mailto:a@b", "//x@y:z@", "perdure", "process", "event", "step", "signal x",
        "step a, signal b", "timer", "undo/a:1", "@queue", "a:1", "cancel", "child x",
    )  # fmt: skip


def controls() -> Iterator[str]:
    """Every control character of ASCII and of Latin 1, alone and inside a word."""
    for point in (*range(0x20), *range(0x7F, 0xA0)):
        yield f"a{chr(point)}b"
    yield from ("\0", "\0\0", "a\0", "\0a", "\n", "\r", "\r\n", "a\r\n\r\nb", "\x1b", "\x7f", "\x80", "\x9f")


def terminals() -> Iterator[str]:
    """Sequences that colour, clear, move, title, link or question a terminal."""
    for opening in ("\x1b[", "\x9b"):
        yield from (
            f"{opening}{rest}" for rest in ("31mred", "2J", "H", "1A", "999D", "?25l", "6n", "c", "0c", "20t", "K")
        )
    for opening, closing in product(("\x1b]", "\x9d"), ("\x07", "\x1b\\", "\x9c")):
        yield from (f"{opening}{rest}{closing}" for rest in ("0;title", "8;;http://x", "52;c;aWQ="))
    yield from (
        "\x1bc", "\x1b(0", "\x1bP$q\x1b\\", "\x1b_x\x1b\\", "\x1b^x\x1b\\", "a\bb", "a\rb", "\x0e", "\a" * 9,
        "\x1b[31m\x1b", "\x05", "2026-01-01 00:00:00 ERROR forged\n", "ok\nperdure: forged", "x\x85forged",
        "x\u2028forged", "a\x0bb", "a\x0cb",
    )  # fmt: skip


def spaces() -> Iterator[str]:
    """Nothing, and everything that looks like nothing."""
    yield from ("", " ", "  ", " a", "a ", " a ", "a b", "a  b", "\ta", "a\t", "\n ", "\u3164", "\uffa0", "\u2800")
    for point in (
        0xA0,
        0xAD,
        0x1680,
        0x180E,
        *range(0x2000, 0x2010),
        0x2028,
        0x2029,
        0x202F,
        0x205F,
        *range(0x2060, 0x2065),
        0x3000,
        0xFEFF,
    ):
        yield chr(point)
        yield f"a{chr(point)}"


def directions() -> Iterator[str]:
    """Marks that turn text around, and scripts that run the other way."""
    for point in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)):
        yield f"a{chr(point)}b"
    yield from (
        "\u202egpj.exe", "\u2066a\u2069", "עברית", "مرحبا", "a עברית 1", "١٢ مرحبا", "\u0640\u0640", "ﷺ",
        "\u202e" * 64,
    )  # fmt: skip


def combining() -> Iterator[str]:
    """Characters in several forms, and heaps of marks on one letter."""
    for text in ("é", "Å", "ñ", "가", "ệ", "ǖ", "ﬁ", "ℵ", "①", "ｱ", "㌀", "ẛ̣"):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            yield unicodedata.normalize(form, text)
    yield from (
        "\u0301", "\u0301a", "a" + "\u0301" * 60, "Z\u0351\u036b\u0343", "\u20dd", "a\u20dd", "\u0344", "\u212b",
        "\u2126", "\u1e9b\u0323",
    )  # fmt: skip


def letters() -> Iterator[str]:
    """Letters that fold, grow, shrink or look alike."""
    yield from (
        "A", "a", "AA", "aA", "ß", "ẞ", "SS", "İ", "i̇", "ı", "K", "\u212a", "ſ", "ǅ", "Σ", "ς", "σ", "ŉ", "ΐ", "ﬀ",
        "pаypal", "рerdure", "ο", "о", "l1I|", "日本語", "русский", "ไทย", "हिन्दी", "தமிழ்", "မြန်မာ", "ᚠᛇᚻ", "𒀀", "𐍈",
        "ꙮ", "꧅",
    )  # fmt: skip


def astral() -> Iterator[str]:
    """Characters beyond the sixteen bits, joined ones, and code points that no text should hold."""
    yield from (
        "😀", "👩‍👩‍👧", "🇱🇻", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👍🏽", "0️⃣", "𝕏", "𝟘", "𠜎", "\U0001f468\u200d", "\U000e0041", "😀" * 63,
        "😀" * 64,
    )  # fmt: skip
    for point in (
        0xE000,
        0xF8FF,
        0xFDD0,
        0xFFF9,
        0xFFFC,
        0xFFFD,
        0xFFFE,
        0xFFFF,
        0x10000,
        0x1FFFE,
        0xE0001,
        0xE01EF,
        0xF0000,
        0x10FFFD,
        0x10FFFF,
    ):
        yield chr(point)
        yield f"a{chr(point)}b"


def halves() -> Iterator[str]:
    """Lone surrogates: halves of characters, which no UTF-8 can hold."""
    for half in ("\ud800", "\udbff", "\udc00", "\udfff", "\udc80", "\ud83d"):
        yield from (half, f"a{half}", f"{half}b", f"a{half}b")
    yield from ("\ud83d\ude00", "\udc00\ud800", "\ud800\0", "😀\udc80", "\udcff\udcfe", "\ud800" * 90)


def lengths() -> Iterator[str]:
    """Text around the limits of names, indexes, buffers and pages."""
    for size in (63, 64, 127, 128, 254, 255, 256, 257, 1000, 2704, 4095, 4096, 4097, 8191, 70_000):
        yield "x" * size
    yield from (
        "é" * 127, "é" * 128, "é" * 127 + "x", "日" * 85, "日" * 86, "日" * 84 + "xyz", "a" * 254 + "é", " " * 255,
        "\n" * 300, "a " * 127 + "b", "'" * 255, "\\" * 255, '"' * 255, "\x1b" * 255, "%s" * 127, "\u0301" * 127,
        "😀" * 1024, "\0" * 300,
    )  # fmt: skip


FAMILIES: tuple[Family, ...] = (
    sql, markup, paths, shell, formats, tables, like_json, numbers, dates, identities, controls, terminals, spaces,
    directions, combining, letters, astral, halves, lengths,
)  # fmt: skip

STRINGS: tuple[str, ...] = tuple(dict.fromkeys(text for family in FAMILIES for text in family()))
"""Every string once, in the order of the families."""
