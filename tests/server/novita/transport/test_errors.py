"""Mapping of the provider's error responses to our errors."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from server.clock import parse_retry_after
from server.errors import (
    AccountLimitReached,
    AuthFailed,
    BalanceExhausted,
    CandidateRefused,
    InsufficientResource,
    InvalidStateChange,
    NovitaError,
    PaymentRequired,
    ProviderError,
    ProviderNotFound,
    ProviderTimeout,
    RateLimited,
    ValidationFailed,
)
from server.novita.transport.errors import MESSAGE_MAX, RETRY_AFTER_MAX, error_from_response
from server.novita.transport.request import get


def body(reason: str = "", message: str = "") -> bytes:
    return orjson.dumps({"code": 400, "reason": reason, "message": message, "metadata": {}})


@pytest.mark.parametrize(
    ("status", "raw", "kind"),
    [
        (400, body("INSUFFICIENT_RESOURCE", "insufficient resource"), InsufficientResource),
        (400, body("", "insufficient resource"), InsufficientResource),
        (400, body("MIGRATE_INSUFFICIENT_RESOURCE"), InsufficientResource),
        (400, body("CUDA_VERSION_INCOMPATIBLE"), CandidateRefused),
        (400, body("UNSUPPORTED_BILLING_MODE"), CandidateRefused),
        (400, body("VALIDATOR_PARAM", "product not found"), CandidateRefused),
        (400, body("", "invalid state change"), InvalidStateChange),
        (400, body("SOME_WORD", "Invalid State Change"), InvalidStateChange),
        (409, body("CONFLICT", "conflict"), InvalidStateChange),
        (409, b"", InvalidStateChange),
        (400, body("", "template not found"), ValidationFailed),
        (400, body("TEMPLATE_NOT_FOUND"), ValidationFailed),
        (400, body("VALIDATOR", "network not found"), ValidationFailed),
        (400, body("", "instance 3560b7fe has an image that was not found"), ValidationFailed),
        (404, body("NOT_FOUNT", "instance not fount"), ProviderNotFound),
        (400, body("", "instance not fount"), ProviderNotFound),
        (400, body("", "instance 3560b7fe does not exist"), ProviderNotFound),
        (400, body("INSTANCE_NOT_FOUND"), ProviderNotFound),
        (404, body("RESOURCE_NOT_FOUND"), ProviderNotFound),
        (404, b"<html><body>404</body></html>", ProviderNotFound),
        (404, b"404 page not found\n", ProviderNotFound),
        (400, body("IMAGE_NOT_FOUND", "image not found"), ValidationFailed),
        (400, body("IMAGE_URL_OR_AUTH_ERROR", "image not found"), ValidationFailed),
        (400, body("VALIDATOR_PARAM", "gpuNum must be between 1 and 8"), ValidationFailed),
        (400, body("A_WORD_OF_TOMORROW", "something new"), ValidationFailed),
        (422, b"", ValidationFailed),
        (413, b"", ValidationFailed),
        (400, body("BALANCE_NOT_ENOUGH"), BalanceExhausted),
        (403, body("EXPIRED_OR_BALANCE_NOT_ENOUGH"), BalanceExhausted),
        (403, body("MEMBER_BUDGET_NOT_ENOUGH"), BalanceExhausted),
        (403, body("CREATE_GPU_NUM_LIMIT"), AccountLimitReached),
        (400, body("CREATE_INSTANCE_LIMIT"), AccountLimitReached),
        (400, body("A_NEW_LIMIT"), AccountLimitReached),
        (402, b"", PaymentRequired),
        (402, body("NOT_ENOUGH_BALANCE"), PaymentRequired),
        (400, body("", "not enough balance"), BalanceExhausted),
        (401, body("INVALID_API_KEY"), AuthFailed),
        (401, b"", AuthFailed),
        (403, body("", "user not found"), AuthFailed),
        (403, body("BANNED_USER"), AuthFailed),
        (408, b"", ProviderTimeout),
        (429, body("RATE_LIMIT_EXCEEDED", "instance quota exceeded"), RateLimited),
        (429, b"<html>", RateLimited),
        (500, body("INTERNAL"), ProviderError),
        (500, body("INSUFFICIENT_RESOURCE"), ProviderError),
        (502, b"<html><h1>502 Bad Gateway</h1></html>", ProviderError),
        (302, b"", ProviderError),
    ],
)
def test_each_refusal_has_its_meaning(status: int, raw: bytes, kind: type[NovitaError]):
    assert type(error_from_response(status, raw, subject="instance")) is kind


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("/template", body("", "template not found")),
        ("/template", body("TEMPLATE_NOT_FOUND")),
        ("/network", body("VALIDATOR", "network not found")),
        ("/networkstorage/delete", body("", "network storage not found")),
        ("/gpu/instance/stop", body("", "instance not fount")),
    ],
)
def test_not_found_in_a_400_means_what_the_call_was_about(path: str, raw: bytes):
    subject = get(path).subject
    assert type(error_from_response(400, raw, subject=subject)) is ProviderNotFound
    assert type(error_from_response(400, raw, subject="user")) is ValidationFailed
    assert type(error_from_response(400, raw, subject=get("/gpu/instance/create").subject)) is ValidationFailed


def test_every_reason_of_an_image_has_its_own_code_and_is_final():
    for word in ("IMAGE_NOT_FOUND", "IMAGE_URL_OR_AUTH_ERROR", "IMAGE_TOO_LARGE"):
        error = error_from_response(400, body(word, "no"))
        assert (error.code, error.retryable, error.tries_next) == (word, False, False)


def test_404_of_a_gateway_says_nothing_about_the_call():
    assert error_from_response(404, b"<html>404</html>").is_certain_refusal is False
    assert error_from_response(404, b"404 page not found\n").is_certain_refusal is False
    assert error_from_response(404, body("NOT_FOUNT", "instance not found")).is_certain_refusal is True


def test_a_quota_shows_the_limit():
    raw = orjson.dumps({"reason": "CREATE_GPU_NUM_LIMIT", "message": "too many GPUs", "metadata": {"limit": "8"}})
    error = error_from_response(400, raw)
    assert (error.code, error.message) == ("QUOTA_EXCEEDED", "too many GPUs: limit 8 (HTTP 400)")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (body("VALIDATOR", "name too long"), "name too long (HTTP 400)"),
        (body("VALIDATOR"), "VALIDATOR (HTTP 400)"),
        (b'{"error":{"message":"from the gateway","code":"bad_request"}}', "from the gateway (HTTP 400)"),
        (b'{"error":"just text"}', "just text (HTTP 400)"),
        (b'"only a string"', "only a string (HTTP 400)"),
        (b"plain\ttext\r\nin lines", "plain text in lines (HTTP 400)"),
        (b"<!doctype html><p>hello", "an HTML page (HTTP 400)"),
        (b"", "no explanation (HTTP 400)"),
        (b'{"connectComponentSSH":{"password":"hunter22"', "JSON that ends early (HTTP 400)"),
        (b"[1, 2]", "no explanation (HTTP 400)"),
    ],
)
def test_the_message_is_the_best_text_there_is(raw: bytes, message: str):
    assert str(error_from_response(400, raw)) == message


def test_a_refusal_carries_its_word_and_its_status():
    error = error_from_response(400, body("validator_param", "no"))
    assert (error.reason, error.status) == ("VALIDATOR_PARAM", 400)


def test_a_long_message_is_cut():
    assert len(str(error_from_response(400, body("", "x" * 1_000_000)))) == MESSAGE_MAX


def test_an_echoed_secret_is_struck_out():
    secrets = (SecretStr("sk_very_secret"), SecretStr("hunter22"), SecretStr(""))
    error = error_from_response(
        401, body("SK_VERY_SECRET", "no such key sk_very_secret; hunter22 neither"), secrets=secrets
    )
    assert (str(error), error.reason) == ("no such key ***; *** neither (HTTP 401)", "***")


def test_retry_after_is_seconds_or_a_date_and_never_unreasonable():
    soon = parse_retry_after(
        format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True), limit=RETRY_AFTER_MAX
    )
    assert soon is not None
    assert timedelta(seconds=25) < soon <= timedelta(seconds=30)
    assert parse_retry_after("7", limit=RETRY_AFTER_MAX) == timedelta(seconds=7)
    assert parse_retry_after(" 1.5 ", limit=RETRY_AFTER_MAX) == timedelta(seconds=1.5)
    assert parse_retry_after("86400", limit=RETRY_AFTER_MAX) == RETRY_AFTER_MAX
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", limit=RETRY_AFTER_MAX) == timedelta(0)
    assert parse_retry_after("Wed, 21 Oct 9999 07:28:00 GMT", limit=RETRY_AFTER_MAX) == RETRY_AFTER_MAX
    for nonsense in (None, "", "soon", "-3", "nan", "1e9", "٣", "9" * 400, "Wed, 99 Oct 2015 07:28:00 GMT"):
        assert parse_retry_after(nonsense, limit=RETRY_AFTER_MAX) is None


@given(status=st.integers(300, 599), raw=st.binary() | st.text().map(lambda text: body(text, text)), header=st.text())
def test_any_refusal_at_all_becomes_one_of_our_errors(status: int, raw: bytes, header: str):
    error = error_from_response(status, raw, retry_after=header)
    assert isinstance(error, NovitaError)
    assert error.status == status
    assert len(str(error)) <= MESSAGE_MAX
