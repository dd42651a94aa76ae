"""How the simulated provider behaves where the real one's behaviour is not known."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from server.simulator.requests import JsonObject, ProviderRefusal


class FirstPage(StrEnum):
    """The number of the first page of a list."""

    BOTH = "both"  # pages 0 and 1 are both the first page
    ZERO = "0"  # page 1 is the second page
    ONE = "1"  # page 0 is refused


class NameFilter(StrEnum):
    """How the `name` parameter of the list of instances selects; always without regard to case."""

    SUBSTRING = "substring"
    PREFIX = "prefix"
    EXACT = "exact"
    IGNORED = "ignored"


class Total(StrEnum):
    """The form of `total` in the list of instances."""

    NUMBER = "number"
    TEXT = "text"  # "3", as in the list of networks
    MISSING = "missing"
    OF_PAGE = "ofPage"  # the length of this page only


class VerbBody(StrEnum):
    """The body of an accepted start, stop, restart, delete, edit, upgrade or migrate, and of a saved auth."""

    USUAL = "usual"  # {"instanceId", "state"} of start, stop and restart; {"jobId"} of migrate; {} of the others
    OBJECT = "object"  # {}
    ENVELOPE = "envelope"  # {"code": 0, "message": "success", "data": null}
    OK = "ok"  # the text OK, which is not JSON
    NULL = "null"
    EMPTY = "empty"
    NO_CONTENT = "noContent"  # status 204


class ListPorts(StrEnum):
    """What the items of the list of instances say about ports; a get by id says everything."""

    FULL = "full"
    NO_ENDPOINTS = "noEndpoints"  # portMappings without their endpoints, and no addresses to connect to
    NONE = "none"  # no portMappings


class NotFound(StrEnum):
    """The body of a 404 about an object that does not exist."""

    JSON = "json"
    HTML = "html"  # as a gateway sends it


class BadDialect(ValueError):
    """One sentence per field that is not right."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One switch per open question about the provider; the defaults satisfy every public client.

    Seconds are real seconds, like the client's timeouts.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    # Lists.
    first_page: FirstPage = FirstPage.BOTH
    default_page_size: int = 10
    max_page_size: int = 1000
    # A larger pageSize: False refuses it, True serves max_page_size items.
    caps_page_size: bool = False
    name_filter: NameFilter = NameFilter.SUBSTRING
    total: Total = Total.NUMBER
    list_ports: ListPorts = ListPorts.FULL
    # From a create until the list has the instance, and whether a get by id lacks it for as long.
    list_delay: float = 0
    list_delay_hides_from_get: bool = False

    # Verbs.
    verb_body: VerbBody = VerbBody.USUAL
    # From an accepted edit until the instance shows it; a repeated disk growth still adds up.
    edit_delay: float = 0
    # Port mappings beside the requested ones, as in "9999/http+2222/tcp".
    extra_ports: str = ""
    # False: an http endpoint is host:port without a scheme.
    endpoints_have_scheme: bool = True
    unique_names: bool = False
    # A deleted instance is gone at once, without toRemove, removing and removed.
    deletes_at_once: bool = False
    # How long `removed` is shown before 404; negative: the usual 3 simulated seconds.
    removed_shown: float = -1
    # The status that a failed image pull ends in (exited or removed), and what statusError says.
    failed_pull_status: str = "exited"
    failed_pull_state: str = "pulling"
    failed_pull_message: str = "failed to pull image {image}: manifest unknown"

    # Refusals.
    not_found: NotFound = NotFound.JSON
    invalid_state_status: int = 400
    invalid_state_reason: str = ""
    # Of BALANCE_NOT_ENOUGH.
    no_balance_status: int = 400
    # Calls per minute before 429; 0: no limit.
    rate_limit: int = 0
    # Retry-After of every 429 and 503 whose fault names none.
    retry_after: str | None = None

    masks_auth_passwords: bool = False
    # Whether a reclaimed spot instance can be started again.
    starts_reclaimed: bool = True
    # Whether a migrated instance still has what was on its own disk.
    migrate_keeps_disk: bool = False
    # Whether two instances may have one network storage.
    shares_storages: bool = False
    # Whether an upgrade that names no network storages keeps the mounted ones.
    upgrade_keeps_storages: bool = True
    # How late metrics are; negative: the usual 60 simulated seconds.
    metrics_lag: float = -1
    # How late seconds are in bills; they are charged to the balance at once.
    bill_lag: float = 0

    @classmethod
    def read(cls, values: Mapping[str, object]) -> "Dialect":
        """Checked values by field name; strings are converted. Raises BadDialect."""
        try:
            dialect = READER.validate_python(dict(values))
            parse_ports(dialect.extra_ports)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise BadDialect("; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in problems)) from None
        return dialect

    @classmethod
    def parse(cls, text: str) -> "Dialect":
        """From pairs such as "first_page=0, name_filter=prefix"."""
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.read({name.strip(): value.strip() for name, _, value in pairs})

    def changed(self, values: Mapping[str, object]) -> "Dialect":
        return self.read({**asdict(self), **values})

    def to_json(self) -> JsonObject:
        return asdict(self)

    def page(self, number: int | None, size: int | None) -> tuple[int, int]:
        """(first row, page size) of the requested page; None stands for a parameter that was not sent."""
        size = size or self.default_page_size
        if size > self.max_page_size:
            if not self.caps_page_size:
                raise _out_of_range("pageSize", 0, self.max_page_size)
            size = self.max_page_size
        if number is None or (number == 0 and self.first_page is FirstPage.BOTH):
            return 0, size
        base = 0 if self.first_page is FirstPage.ZERO else 1
        if number < base:
            raise _out_of_range("pageNum", base, 2**53)
        return (number - base) * size, size

    def total_field(self, total: int, *, on_page: int) -> bytes:
        """The field `total` with its comma, to be put behind the list."""
        match self.total:
            case Total.NUMBER:
                return b',"total":%d' % total
            case Total.TEXT:
                return b',"total":"%d"' % total
            case Total.OF_PAGE:
                return b',"total":%d' % on_page
            case Total.MISSING:
                return b""

    def matches_name(self, name: str, wanted: str) -> bool:
        match self.name_filter:
            case NameFilter.SUBSTRING:
                return wanted in name
            case NameFilter.PREFIX:
                return name.startswith(wanted)
            case NameFilter.EXACT:
                return name == wanted
            case NameFilter.IGNORED:
                return True

    def verb_answer(self, usual: bytes) -> tuple[int, bytes]:
        """(status, body) of an accepted verb."""
        match self.verb_body:
            case VerbBody.USUAL:
                return 200, usual
            case VerbBody.NO_CONTENT:
                return 204, b""
            case other:
                return 200, VERB_BODIES[other]


READER = TypeAdapter(Dialect)

VERB_BODIES = {
    VerbBody.OBJECT: b"{}",
    VerbBody.ENVELOPE: b'{"code":0,"message":"success","data":null}',
    VerbBody.OK: b"OK",
    VerbBody.NULL: b"null",
    VerbBody.EMPTY: b"",
}


def parse_ports(text: str) -> list[tuple[int, str]]:
    """The ports of "9999/http+2222/tcp"."""
    ports: list[tuple[int, str]] = []
    for part in text.split("+") if text else ():
        number, _, kind = part.strip().partition("/")
        if not number.isdigit() or not 1 <= int(number) <= 65535 or kind not in ("http", "tcp"):
            raise BadDialect(f"extra_ports: must look like 9999/http+2222/tcp, not {text!r}")
        ports.append((int(number), kind))
    return ports


def _out_of_range(name: str, least: int, most: int) -> ProviderRefusal:
    return ProviderRefusal(400, "VALIDATOR_PARAM", f"{name} must be between {least} and {most}", {"field": name})
