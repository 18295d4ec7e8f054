"""Saved searches at the terminal: queries under names, for every --where."""

from __future__ import annotations

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, Json, Url, Who, connected, present, user
from perdure.cli.plain_output import say
from perdure.cli.rows import Rows

search = App(name="search", help="Save queries under names, for every --where.", help_format="plaintext")


@search.command
async def save(name: str, query: str, *, who: Who = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Save a query under a name, in place of one that had it: then --where "@NAME and age > 2d" uses it.

    Parameters
    ----------
    name
        Its name: letters, digits, and _ . -
    query
        The query: "status = failed and error = CardRefused". It may use other saved searches, as they are now.
    """
    async with connected(url) as engine:
        saved = await engine.searches.save(name, query, who=who or user())
    if json:
        output.show_json(saved)
        return
    say(f"saved @{saved.name}: {saved.where}")


@search.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the saved searches."""
    async with connected(url) as engine:
        found = await engine.searches.list()
        now = await present(engine)
    if json:
        output.show_json(found)
        return
    rows = Rows("name", "query", "saved", "by")
    for one in found:
        rows.add(f"@{one.name}", text.cut(one.where, 300), text.when(one.at, now), one.who)
    output.show(rows if found else 'no search is saved; save one with: perdure search save NAME "QUERY"')


@search.command
async def rm(name: str, *, url: Url = DEFAULT_URL) -> None:
    """Forget a saved search.

    Parameters
    ----------
    name
        Its name.
    """
    async with connected(url) as engine:
        await engine.searches.remove(name)
    say(f"removed @{name}")
