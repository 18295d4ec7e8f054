"""Decoys: functions, operators, types and relations that a stranger has planted under every name that our SQL uses.

Each counts that it was used (in a sequence, which no rollback takes back) and then fails. They stand in the schema
``public`` and in one that comes first in the engine's own search path, which names ``pg_catalog`` last: whatever looks
a name up by the path of its login finds a decoy.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product

STRANGER, ENGINE, OWN = "stranger", "engine", "engine"
TYPES = (
    "uuid",
    "text",
    "int4",
    "int8",
    "int2",
    "bool",
    "bytea",
    "timestamptz",
    "interval",
    "jsonb",
    "oid",
    "xid",
    "tid",
)
"""The types that our tables and parameters have: overloads for them, and for arrays of them, fit better than others."""
DOMAINS = ("uuid", "text", "bytea", "timestamptz", "jsonb", "tid", "oid", "xid", "pg_lsn", "regclass")
RELATIONS = ("pg_locks", "pg_database", "pg_type", "pg_namespace", "pg_proc", "pg_attribute")
DRIVER = ("current_setting", "set_config", "array_agg", "unnest", "format_type", "quote_ident", "any_agg")
"""What the driver itself asks by."""

_CALL = re.compile(r"(?<![\w.\"])([a-z_][a-z0-9_]*)\s*\(")
_OPERATOR = re.compile(r"(?<![\w'$(])\s([-+*/<>=~!@#%^&|]{1,3})(?=\s)")
_COMMENT = re.compile(r"--[^\n]*|'(?:[^']|'')*'")


def our_sql() -> str:
    """All SQL of ours for PostgreSQL, without comments and literals."""
    folder = files("perdure.store").joinpath("sql", "postgres")
    found = []
    for place in (folder, folder.joinpath("functions"), folder.joinpath("migrations")):
        found += [file.read_text() for file in place.iterdir() if file.name.endswith(".sql")]
    return _COMMENT.sub(" '' ", "\n".join(found))


def names() -> set[str]:
    """Every name that our SQL and the driver's call, qualified or not; those that are no functions do no harm."""
    return {*_CALL.findall(re.sub(r"\bpg_catalog\.", "", our_sql())), *DRIVER}


def operators() -> set[str]:
    """Every operator that our SQL uses."""
    text = re.sub(r"OPERATOR\(pg_catalog\.(\S+)\)", r" \1 ", our_sql())
    return {found for found in _OPERATOR.findall(text) if found != "->"} | {"=", "<>", "->", "@>"}


def planted(schema: str, known: dict[str, list[str]]) -> str:
    """The SQL that plants all decoys in a schema; ``known`` has the arguments of what pg_catalog has."""
    parts = ["SET search_path = pg_catalog; SET check_function_bodies = off; SET client_min_messages = error;"]
    parts += [_function(schema, name, given) for name in sorted(known) for given in sorted(_overloads(known[name]))]
    parts += [_operator(schema, sign, left, right) for sign in sorted(operators()) for left, right in _pairs()]
    parts += [
        f"CREATE DOMAIN {schema}.{name} AS pg_catalog.{name} CHECK (public.trap('{schema}.{name}') IS NULL AND false);"
        for name in DOMAINS
    ]
    parts += [f"CREATE VIEW {schema}.{name} AS SELECT public.trap('{schema}.{name}') AS nothing;" for name in RELATIONS]
    return "\n".join(parts)


TRAP = """
CREATE SEQUENCE public.caught;
CREATE FUNCTION public.trap(text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM nextval('public.caught');
    RAISE EXCEPTION 'the decoy % was used', $1;
END
$$;
"""
CAUGHT = "SELECT is_called FROM public.caught"
KNOWN = """
SELECT p.proname, pg_catalog.oidvectortypes(p.proargtypes) AS given FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ($1)
"""
"""What the catalogue has of those names, and with which arguments."""


def _overloads(given: list[str]) -> set[str]:
    """Those arguments as they stand, and where any type fits, or any array, each of ours and each of its arrays."""
    found = set()
    for one in given:
        found.add(one)
        if re.search(r"\bany\w*\b", one) or '"any"' in one:
            for type in TYPES:
                fitted = re.sub(r"\bany(compatible)?array\b", f"{type}[]", one)
                fitted = re.sub(r'"any"|\bany(compatible|element|nonarray|enum)?\b', type, fitted)
                if "any" not in fitted:
                    found.add(fitted)
    return {one for one in found if "any" not in one and "internal" not in one and "cstring" not in one}


def _function(schema: str, name: str, given: str) -> str:
    return (
        f'CREATE OR REPLACE FUNCTION {schema}."{name}"({given}) RETURNS text LANGUAGE plpgsql AS '
        f"$$ BEGIN RETURN public.trap('{schema}.{name}'); END $$;"
    )


def _pairs() -> list[tuple[str, str]]:
    every = [*TYPES, "numeric"]
    return [*product(every, every), *((f"{one}[]", f"{one}[]") for one in every), *((f"{one}[]", one) for one in every)]


def _operator(schema: str, sign: str, left: str, right: str) -> str:
    answer = "bool" if sign[0] in "=<>@&" and sign != "<<" else left
    name = f"op_{answer}_{left}_{right}".replace("[]", "s")
    return (
        f"CREATE OR REPLACE FUNCTION {schema}.{name}({left}, {right}) RETURNS {answer} LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM public.trap('{schema}.{sign}'); END $$;"
        f"CREATE OPERATOR {schema}.{sign} (FUNCTION = {schema}.{name}, LEFTARG = {left}, RIGHTARG = {right});"
    )
