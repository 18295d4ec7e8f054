"""What an operator asks of a running process, on both stores: ``call``."""

from __future__ import annotations

from perdure import Engine
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Program, Terminal


def test_call_prints_what_a_running_process_answers_and_the_same_to_the_same_key(
    terminal: Terminal, programs: list[Program]
) -> None:
    programs.append(terminal.program("worker", "tests.cli.till"))
    programs[0].line_with(" hosts ")
    assert terminal("start", "tests.cli.till:counter", "--key", "C-1").code == 0
    told = terminal("call", "C-1", "price", "anvil", "--key", "k")
    assert (told.code, told.out) == (0, '{"cents":5,"asked":1}\n')
    assert terminal("call", "C-1", "price", "anvil", "--key", "k", "--json").json["answer"] == {"cents": 5, "asked": 1}
    refused = terminal("call", "C-1", "price", "Riga", "--why", "a wish")
    assert (refused.code, refused.err) == (1, "perdure: price was refused: ValueError: not for sale\n")
    wrong = terminal("call", "C-1", "price", "[1]")
    assert wrong.code == 1 and "PayloadError: call 'price' cannot be read as str" in wrong.err
    history = terminal("history", "C-1")
    assert history.has('message received: price "anvil"')
    assert history.has('call answered: price:1 {"cents":5,"asked":1}')
    assert history.has("message received: price", "because: a wish")
    assert history.has("call refused: price:2 ValueError: not for sale")
    late = terminal("call", "C-1", "weight", "--timeout", "10ms")
    assert (late.code, late.err) == (1, "perdure: no answer to 'weight' within 0.01 s; ask again with the same key\n")


def test_call_says_so_where_nobody_will_answer(terminal: Terminal, working: Working) -> None:
    async def ended(engine: Engine) -> None:
        handle = await engine.start(till.counter.options(key="C-1", signal=("price", "")))
        await handle.result(10)

    working(ended)
    said = terminal("call", "C-1", "price", "anvil")
    assert (said.code, said.err) == (
        1,
        "perdure: counter C-1 has completed and has not answered 'price'; its result says more\n",
    )
