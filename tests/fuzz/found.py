"""What fuzzing has found, by entry: fed again by every run, so that it stays mended."""

from __future__ import annotations

from collections.abc import Mapping

FOUND: Mapping[str, tuple[bytes, ...]] = {
    # A field that the type does not know, under a name that is no UTF-8: UnicodeDecodeError out of the second look.
    "value": (b'\x0e{"street":"","\x83":1}',),
    "call": (b'[1,"",{"where":{"street":"","\xa5":1}}]', b'{"":[1],"\xff":1}'),
    # Nested deeper than the reader's stack: RecursionError out of everything that the engine had recorded.
    "failure": (b'{"type":"a","message":"b","c":' + b"[" * 3000,),
    # Damaged records of a history: the bare errors of the JSON reader.
    "records": (b"{}", b"\xff", b'{"from_run":"1"}', b'{"a":' * 3000, b'{"id":"\xff"}'),
    # What an environment or an argument holds that was not typed in UTF-8.
    "url": (
        b"postgres:\xd0",
        b"postgresql://u:secret-word/x@h/d",  # the refusal quoted the password
        b"postgresql://%00@h/d",
        b"postgresql://.../d",
        b"postgresql:x//u:secret-word@h/d",
    ),
    "keys": (b"\xb5:", b":", b"a:" + b"\xff" * 44),
    "duration": (b"nan", b"-inf d", b"1e999h", b"1_0s", b"\xd9\xa3h", b"9" * 400),
    "typed": (b"\x9b", b"=\xd4", b"\xff=5", b"[" * 3000, b'{"input":[1,"\xff",[]]}'),
    # A ring of a bell with a kind that is no UTF-8 ended in the event loop's last resort.
    "news": (b'{"news":{"kinds":["\xff"]}}', b'{"news":' * 3000),
    # Payloads of another hand that the pages of a history failed on, or passed on to the terminal.
    "shown": (b'"\x80"', b"[]", b'{"who":"a\\u001b[31m"}', b'{"until":1e308}', b"[" * 3000, b'{"died":1,"worker":2}'),
    "name": (b"+" + b"f" * 31, b"0x" + b"f" * 30, "٠".encode() * 32, b"f_" * 16),
}
