"""read — reads a condition: `state=HOLD recipientdomain=example.com age>1h retry_count=3..10 "last_error~greylist"`

Owns: the grammar, the values of each kind, and the exact place of a typo.
Guarantees: pure. Terms side by side are joined by `and`, which binds closer than `or`; `not` binds closest.
Raises: ConditionError, whose text has the condition and a caret under the fault.
See: docs/reference/condition.md.

    condition = conjunction { "or" conjunction }
    conjunction = negation { [ "and" ] negation }
    negation = [ "not" ] ( "(" condition ")" | term )
    term = name operator value { "," value }          operator: = != ~ !~ < <= > >=
    value = word | "quoted" | 'quoted' | from..to | from.. | ..to | nothing at all, for a field that is not set
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, NoReturn

from shared.config.condition.fields import ALIASES, ALLOWED, FIELDS, METADATA, find
from shared.config.condition.tree import All, ConditionError, Node, Not, Some, Term
from shared.config.condition.values import Value, read_value
from shared.config.where_condition import unknown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shared.config.condition.fields import Field

_LONGEST: Final = 10_000  # characters
_DEEPEST: Final = 50  # parentheses within parentheses
_MOST_VALUES: Final = 1000

_UNWRITABLE: Final = re.compile("[\0\ud800-\udfff]")
_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"metadata\.[^\s=!<>~(),\"']+|[A-Za-z_]\w*", re.IGNORECASE)
_OPERATOR: Final = re.compile(r"!=|!~|<=|>=|=|~|<(?!>)|>")
_BARE: Final = re.compile(r"[^\s,()\"']+")
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ADDRESS: Final = re.compile(r"[^\s@=!<>~]+@[^\s@=!<>~]+")
_DOMAIN: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_QUOTES: Final = ('"', "'")
_WORDS: Final = frozenset({"and", "or", "not"})


def read(words: str | Sequence[str], fields: Mapping[str, Field] = FIELDS) -> Node:
    """The condition in one text, or in the words of a command line. Without any it fits everything: `All()`."""
    return _Reader(words if isinstance(words, str) else " ".join(map(_requoted, words)), fields).whole()


class _Reader:
    """One walk through the text, from left to right."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self._text = text
        self._fields = fields
        self._at = 0
        self._depth = 0
        if len(text) > _LONGEST:
            self._refuse(f"the condition is longer than {_LONGEST} characters", _LONGEST)
        unwritable = _UNWRITABLE.search(text)
        if unwritable is not None:
            self._refuse("PostgreSQL keeps no such character: not UTF-8, or NUL", unwritable.start())

    def whole(self) -> Node:
        self._skip()
        if self._at == len(self._text):
            return All()
        node = self._condition()
        if self._at < len(self._text):
            self._refuse("closing parenthesis without an opening one" if self._peek(")") else "this is not a term")
        return node

    def _condition(self) -> Node:
        parts = [self._conjunction()]
        while self._word("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Some(tuple(_flat(parts, Some)))

    def _conjunction(self) -> Node:
        parts = [self._negation()]
        while self._word("and") or not (self._at == len(self._text) or self._peek(")") or self._ahead() == "or"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else All(tuple(_flat(parts, All)))

    def _negation(self) -> Node:
        if self._word("not"):
            return Not(self._nested(self._negation))
        if not self._peek("("):
            return self._term()
        opened = self._at
        self._at += 1
        self._skip()
        node = self._nested(self._condition)
        if not self._peek(")"):
            self._refuse("this parenthesis is never closed", opened)
        self._at += 1
        self._skip()
        return node

    def _nested(self, inner: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"more than {_DEEPEST} conditions within each other")
        node = inner()
        self._depth -= 1
        return node

    def _term(self) -> Node:
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None:
            return self._quoted_term(quoted)
        if self._text[self._at : self._at + 1] in _QUOTES:
            self._refuse("these quotes are never closed")
        began = self._at
        name = self._match(_NAME)
        if name is None:
            self._refuse("a term was expected here: name, operator, value, such as state=HOLD")
        field = self._field(name, began)
        self._skip()
        operator = self._match(_OPERATOR)
        if operator is None:
            self._refuse(f"after {name} an operator was expected: = != ~ !~ < <= > >=")
        at = self._at
        values = self._values(field, name, operator)
        return self._made(name, field, operator, values, at)

    def _quoted_term(self, quoted: re.Match[str]) -> Node:
        """A whole term in quotes, whose value goes to the end of them, spaces and all."""
        inner, began = _unquoted(quoted), self._at + 1
        name = _NAME.match(inner)
        operator = _OPERATOR.match(inner, name.end()) if name else None
        if name is None or operator is None:
            self._refuse('in quotes a whole term was expected, such as "last_error~try later"', began)
        field = self._field(name[0], began)
        value = self._value(field, name[0], operator[0], inner[operator.end() :], began + operator.end(), exact=True)
        self._at = quoted.end()
        self._skip()
        return self._made(name[0], field, operator[0], [value], began + operator.end())

    def _field(self, name: str, at: int) -> Field:
        """The field of the name that stands at this place."""
        field = find(name, self._fields)
        if field is None:
            alone = _BARE.match(self._text, at)
            self._refuse(_alone(alone[0] if alone else name) or _unknown(name, self._fields), at)
        if name.lower().startswith(METADATA) and (wrong := unknown_key(name[len(METADATA) :])):
            self._refuse(wrong, at)
        return field

    def _made(self, name: str, field: Field, operator: str, values: list[Value], at: int) -> Node:
        negated = operator in {"!=", "!~"}
        plain = operator.removeprefix("!")
        if plain in {"<", "<=", ">", ">="} and (len(values) > 1 or not values[0].is_single):
            self._refuse(f"{operator} takes one value", at)
        lowered = name if name.lower().startswith(METADATA) else name.lower()
        return Term(ALIASES.get(lowered, lowered), field, plain, tuple(values), negated)

    def _values(self, field: Field, name: str, operator: str) -> list[Value]:
        """One value, or several with commas between them; none is the value that is not set."""
        if self._at == len(self._text) or self._text[self._at].isspace() or self._peek(")"):
            after = _SPACE.match(self._text, self._at)
            # `age > 1h`: the value may stand apart, unless a term begins there.
            if after is None or not self._stands_apart(after.end()):
                found = [self._value(field, name, operator, "", self._at, exact=True)]
                self._skip()
                return found
            self._at = after.end()
        found = []
        while True:
            at = self._at
            quoted = _QUOTED.match(self._text, at)
            if quoted is not None:
                text, self._at = _unquoted(quoted), quoted.end()
            else:
                text = self._match(_BARE) or ""
                if not text:
                    self._refuse(
                        "these quotes are never closed"
                        if self._text[at : at + 1] in _QUOTES
                        else "a value was expected here"
                    )
                if text[0] in "=~":
                    self._refuse(
                        f"after {operator} a value was expected; allowed: the operators = != ~ !~ < <= > >=, "
                        f"and quotes around a value that begins with {text[0]}",
                        at,
                    )
            found.append(self._value(field, name, operator, text, at, exact=quoted is not None))
            if len(found) > _MOST_VALUES:
                self._refuse(f"more than {_MOST_VALUES} values", at)
            self._skip()
            if not self._peek(","):
                return found
            self._at += 1
            self._skip()

    def _stands_apart(self, at: int) -> bool:
        """Whether a value begins at this place, and not the next term or a word of the grammar."""
        quoted = _QUOTED.match(self._text, at)
        if quoted is not None:
            return not _is_term(_unquoted(quoted))
        bare = _BARE.match(self._text, at)
        if bare is None or bare[0].lower() in _WORDS:
            return False
        name = _NAME.match(self._text, at)
        following = _SPACE.match(self._text, name.end()) if name else None
        return following is None or _OPERATOR.match(self._text, following.end()) is None

    def _value(self, field: Field, name: str, operator: str, text: str, at: int, *, exact: bool) -> Value:
        try:
            return read_value(field, operator.removeprefix("!"), text, exact=exact)
        except ValueError as error:
            allowed = "" if "allowed:" in str(error) else f"; allowed: {ALLOWED[field.kind]}"
            self._refuse(f"{name}: {error}{allowed}", at)

    def _ahead(self) -> str:
        bare = _BARE.match(self._text, self._at)
        return bare[0].lower() if bare else ""

    def _word(self, word: str) -> bool:
        if self._ahead() != word:
            return False
        self._at += len(word)
        self._skip()
        return True

    def _peek(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _refuse(self, reason: str, at: int | None = None) -> NoReturn:
        raise ConditionError(reason, self._text, self._at if at is None else at)


def _requoted(word: str) -> str:
    """A word of a command line, in quotes again where the shell took those of a term whose value has spaces."""
    name = _NAME.match(word)
    operator = _OPERATOR.match(word, name.end()) if name else None
    if operator is None or _OPERATOR.search(word, operator.end()) or re.search(r"\s|^$", word.strip()) is None:
        return word
    if _QUOTED.search(word, operator.end()) or word.startswith(_QUOTES, operator.end()):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_term(text: str) -> bool:
    name = _NAME.match(text)
    return name is not None and _OPERATOR.match(text, name.end()) is not None


def _flat(parts: Sequence[Node], kind: type[All | Some]) -> Iterator[Node]:
    """The parts, those of a part of the same kind instead of it: (a or b) or c is a or b or c."""
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _unquoted(quoted: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", quoted[1] if quoted[1] is not None else quoted[2])


def _alone(word: str) -> str | None:
    """The error about an address or a domain without a name before it; None for any other word."""
    for what, form, names in (
        ("an address", _ADDRESS, ("recipient", "sender")),
        ("a domain", _DOMAIN, ("recipientdomain", "senderdomain")),
    ):
        if form.fullmatch(word):
            return f"{what} alone; allowed: {' or '.join(f'{name}={word}' for name in names)}"
    return None


def _unknown(name: str, fields: Mapping[str, Field]) -> str:
    """The error about an unknown name, with the one that was probably meant."""
    near = difflib.get_close_matches(
        name.lower(), [*fields, *(each for each, of in ALIASES.items() if of in fields)], 1
    )
    if near:
        return f"unknown field {name}; did you mean {near[0]}?"
    return f"unknown field {name}; allowed: {', '.join(fields)}, metadata.KEY"
