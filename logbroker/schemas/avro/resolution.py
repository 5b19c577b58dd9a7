"""Check whether a reader's schema can read all data of a writer's schema, and if not, why.

Each pair of a reader's and a writer's type has needs: sets of other pairs of which one must be
readable. All pairs start as readable; a pair that turns out unreadable makes those that need it
unreadable. So a recursive schema is readable unless a part is not, and no cycle makes a pair
readable that is not. Nothing here recurses, so no schema can exhaust the stack.

Stricter than Java's SchemaCompatibility where readers would fail: decimals of another precision or
scale, which the specification rejects; aliases that merge two fields; and unions in which a reader
would choose a branch that cannot read although another one could.

Source: Avro 1.12 specification, "Schema Resolution" and "Aliases".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from logbroker.schemas.avro.types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    RecordType,
    Union,
    type_name,
)

PAIRS_MAX: Final = 100_000
"""Limit of a reader's unions times a writer's; real schemas stay far below."""

MISMATCHES_MAX: Final = 20
"""Mismatches that are reported; others appear after these are corrected."""

_PROMOTED: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""(writer's type, reader's type)"""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A mismatch, and its place in the reader's schema as a JSON pointer."""

    path: str
    problem: str
    kind: str


@dataclass(eq=False, slots=True)
class _Need:
    """Pairs of which one must be readable; otherwise `mismatch` is reported."""

    step: str
    options: list["_Pair"] = field(default_factory=list)
    mismatch: Mismatch | None = None
    readable: int = 0


@dataclass(eq=False, slots=True)
class _Pair:
    reader: AvroType
    writer: AvroType
    mismatches: list[Mismatch] = field(default_factory=list)
    needs: list[_Need] = field(default_factory=list)
    needed_by: list[tuple["_Pair", _Need]] = field(default_factory=list)
    is_readable: bool = True


def mismatches(reader: AvroType, writer: AvroType) -> list[Mismatch]:
    """Why the reader cannot read all data of the writer; empty if it can."""
    pairs = _Pairs()
    root = pairs.add(reader, writer)
    if not pairs.complete():
        return [Mismatch("/", f"more than {PAIRS_MAX} pairs of types to compare", "TOO_LARGE")]
    pairs.spread()
    return list(islice(_explained(root), MISMATCHES_MAX))


class _Pairs:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Pair] = {}
        self._open: list[_Pair] = []
        self._branches: dict[int, _Branches] = {}

    def add(self, reader: AvroType, writer: AvroType) -> _Pair:
        place = (id(reader), id(writer))
        pair = self._known.get(place)
        if pair is None:
            pair = self._known[place] = _Pair(reader, writer)
            self._open.append(pair)
        return pair

    def complete(self) -> bool:
        """Add all pairs that the known ones need; false if there are too many."""
        while self._open:
            if len(self._known) > PAIRS_MAX:
                return False
            self._compare(self._open.pop())
        return True

    def spread(self) -> None:
        """Mark the pairs unreadable that need an unreadable one."""
        lost = [pair for pair in self._known.values() if self._is_lost(pair)]
        for pair in lost:
            pair.is_readable = False
        while lost:
            for parent, need in lost.pop().needed_by:
                need.readable -= 1
                if need.readable == 0 and parent.is_readable:
                    parent.is_readable = False
                    lost.append(parent)

    def _is_lost(self, pair: _Pair) -> bool:
        return bool(pair.mismatches) or any(not need.options for need in pair.needs)

    def _compare(self, pair: _Pair) -> None:
        reader, writer = pair.reader, pair.writer
        if isinstance(writer, Union):
            for branch in writer.branches:
                self._need(pair, "", [(reader, branch)])
        elif isinstance(reader, Union):
            self._need(
                pair,
                "",
                [(branch, writer) for branch in self._branches_of(reader).candidates(writer)],
                _missing_branch(reader, writer),
            )
        else:
            pair.mismatches = list(_own_mismatches(reader, writer))
            self._need_parts(pair, reader, writer)

    def _branches_of(self, union: Union) -> "_Branches":
        if id(union) not in self._branches:
            self._branches[id(union)] = _Branches(union)
        return self._branches[id(union)]

    def _need_parts(self, pair: _Pair, reader: AvroType, writer: AvroType) -> None:
        match reader, writer:
            case Array(), Array():
                self._need(pair, "/items", [(reader.items, writer.items)])
            case Map(), Map():
                self._need(pair, "/values", [(reader.values, writer.values)])
            case RecordType(), RecordType():
                written = _by_name(writer)
                for place, each in enumerate(reader.fields):
                    for source in _sources(each, written)[:1]:
                        self._need(pair, f"/fields/{place}/type", [(each.type, source.type)])

    def _need(
        self,
        pair: _Pair,
        step: str,
        options: Sequence[tuple[AvroType, AvroType]],
        mismatch: Mismatch | None = None,
    ) -> None:
        need = _Need(step, mismatch=mismatch, readable=len(options))
        pair.needs.append(need)
        for reader, writer in options:
            option = self.add(reader, writer)
            need.options.append(option)
            option.needed_by.append((pair, need))


def _own_mismatches(reader: AvroType, writer: AvroType) -> Iterator[Mismatch]:
    """The mismatches of two types that are not unions, without those of their parts."""
    if reader.kind != writer.kind:
        if (writer.kind, reader.kind) not in _PROMOTED or _has_decimal(reader, writer):
            yield _against("", type_name(reader), type_name(writer), "TYPE_MISMATCH")
        return
    if isinstance(reader, Named) and isinstance(writer, Named) and not _same_name(reader, writer):
        yield _against("/name", type_name(reader), type_name(writer), "NAME_MISMATCH")
    match reader, writer:
        case Primitive(), Primitive():
            yield from _decimal_mismatch(reader, writer)
        case Fixed(), Fixed():
            if reader.size != writer.size:
                needed = f"{reader.size} bytes"
                yield _against("/size", needed, f"{writer.size}", "FIXED_SIZE_MISMATCH")
            yield from _decimal_mismatch(reader, writer)
        case Enum(), Enum():
            yield from _enum_mismatches(reader, writer)
        case RecordType(), RecordType():
            yield from _record_mismatches(reader, writer)


def _decimal_mismatch(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Iterator[Mismatch]:
    if reader.decimal and writer.decimal and reader.decimal != writer.decimal:
        yield _against("", _digits(reader.decimal), _digits(writer.decimal), "DECIMAL_MISMATCH")


def _digits(decimal: Decimal) -> str:
    return f"precision {decimal.precision} and scale {decimal.scale}"


def _enum_mismatches(reader: Enum, writer: Enum) -> Iterator[Mismatch]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if missing and reader.default is None:
        shown = ", ".join(missing[:MISMATCHES_MAX])
        problem = f"reader has no default and not all symbols, writer also has {shown}"
        yield Mismatch("/symbols", problem, "MISSING_ENUM_SYMBOLS")


def _record_mismatches(reader: RecordType, writer: RecordType) -> Iterator[Mismatch]:
    written = _by_name(writer)
    takers: dict[str, str] = {}
    for place, each in enumerate(reader.fields):
        sources = _sources(each, written)
        path = f"/fields/{place}"
        if not sources and each.default is NO_DEFAULT:
            problem = (
                f"reader needs the field {each.name!r} ({type_name(each.type)}) and has no default,"
                " writer has no such field"
            )
            yield Mismatch(path, problem, "READER_FIELD_MISSING_DEFAULT_VALUE")
        if len(sources) > 1:
            names = " and ".join(repr(source.name) for source in sources)
            problem = f"reader has one field {each.name!r}, writer has {names} for it"
            yield Mismatch(path, problem, "AMBIGUOUS_ALIAS")
        for source in sources[:1]:
            other = takers.setdefault(source.name, each.name)
            if other != each.name:
                problem = f"reader has {other!r} and {each.name!r}, writer has one {source.name!r}"
                yield Mismatch(path, f"{problem} for both", "AMBIGUOUS_ALIAS")


def _sources(wanted: Field, written: Mapping[str, Field]) -> list[Field]:
    """The writer's fields for a reader's field: by its own name, then by its aliases."""
    names = [wanted.name, *sorted(wanted.aliases - {wanted.name})]
    return [written[name] for name in names if name in written]


def _by_name(record: RecordType) -> dict[str, Field]:
    return {each.name: each for each in record.fields}


class _Branches:
    """The branches of a reader's union, by the names of the writer's types that they read."""

    def __init__(self, union: Union) -> None:
        self._all = union.branches
        self._full: dict[tuple[str, str], AvroType] = {}
        self._simple: dict[tuple[str, str], tuple[int, AvroType]] = {}
        self._aliases: dict[tuple[str, str], tuple[int, AvroType]] = {}
        for place, each in enumerate(union.branches):
            if isinstance(each, Named):
                self._full[each.kind, each.name] = each
                self._simple.setdefault((each.kind, _simple(each)), (place, each))
                for alias in each.aliases:
                    self._aliases.setdefault((each.kind, alias), (place, each))

    def candidates(self, writer: AvroType) -> Sequence[AvroType]:
        """The branches that may read a type; of those with its name, the one readers choose."""
        if not isinstance(writer, Named):
            return self._all
        named = writer.kind, writer.name
        if named in self._full:
            return [self._full[named]]
        found = [self._simple.get((writer.kind, _simple(writer))), self._aliases.get(named)]
        return [branch for _, branch in sorted(filter(None, found), key=_first)[:1]]


def _first(found: tuple[int, AvroType]) -> int:
    return found[0]


def _same_name(reader: Named, writer: Named) -> bool:
    """Whether the names match without their namespaces, or by an alias of the reader's."""
    return _simple(reader) == _simple(writer) or writer.name in reader.aliases


def _simple(named: Named) -> str:
    return named.name.rpartition(".")[2]


def _has_decimal(*types: AvroType) -> bool:
    return any(isinstance(each, Primitive) and each.decimal is not None for each in types)


def _missing_branch(reader: Union, writer: AvroType) -> Mismatch:
    branches = ", ".join(type_name(branch) for branch in reader.branches[:MISMATCHES_MAX])
    return _against("", f"one of [{branches}]", type_name(writer), "MISSING_UNION_BRANCH")


def _against(path: str, needed: str, given: str, kind: str) -> Mismatch:
    return Mismatch(path, f"reader needs {needed}, writer has {given}", kind)


def _explained(root: _Pair) -> Iterator[Mismatch]:
    """The mismatches that make the root unreadable, in the order of the reader's schema."""
    found = 0
    seen = {id(root)}
    todo = [(root, "")]
    while todo and found < MISMATCHES_MAX:
        pair, path = todo.pop()
        for each in _reasons(pair):
            yield Mismatch(path + each.path or "/", each.problem, each.kind)
            found += 1
        for child, step in reversed(list(_culprits(pair))):
            if id(child) not in seen:
                seen.add(id(child))
                todo.append((child, path + step))


def _reasons(pair: _Pair) -> list[Mismatch]:
    """The mismatches of this pair; those of an intended branch are more useful than the union's."""
    return pair.mismatches + [
        need.mismatch
        for need in pair.needs
        if need.readable == 0 and need.mismatch is not None and not any(_meant(pair, need))
    ]


def _culprits(pair: _Pair) -> Iterator[tuple[_Pair, str]]:
    """The pairs that cause the mismatch, with their paths."""
    for need in pair.needs:
        if need.readable > 0:
            continue
        if need.mismatch is None:
            yield from ((option, need.step) for option in need.options)
        else:
            yield from _meant(pair, need)


def _meant(pair: _Pair, need: _Need) -> Iterator[tuple[_Pair, str]]:
    """The branch of a reader's union with the writer's kind and name."""
    assert isinstance(pair.reader, Union)
    for option in need.options:
        if option.reader.kind == option.writer.kind:
            yield option, f"/{pair.reader.branches.index(option.reader)}"
