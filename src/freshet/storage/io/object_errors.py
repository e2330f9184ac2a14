"""What a store has answered, and the error that says so to a person.

The client's errors carry the status and S3's code in their text only, with pages of debugging after it. What is shown
is one line: the request, the status, the code, and what to do next. Source: obstore 0.12.1, tried; S3's error codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError, UnknownConfigurationKeyError

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError, StorageError
from freshet.storage.options.secrets import without_secrets

ERRORS: Final = (BaseError, OSError, ValueError)
"""What a call of the client raises."""

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|^[^\n]*DeleteObjects request failed.*\(code: (\w+)\)")
"""The second: of one object, in the answer to a bulk delete, whose status is 200."""

_REQUEST: Final = re.compile(r"Error performing (\w+) (https?://\S+?)(?:\?\S*)? in \S+?,?(?: after (\d+) retries)?[, ]")
_NO_ANSWER: Final = re.compile(r"kind: (Connect|Timeout|Request|Interrupted|Decode|Unknown)\b")
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
_SYSTEM: Final = re.compile(r'(?:message|error): "([^"]{1,200})"')

_ROLE_OF_MACHINE: Final = re.compile(r"/latest/(api/token|meta-data)")
"""What a machine of AWS is asked for its role: the last place where credentials are looked for."""
_OF_CREDENTIALS: Final = re.compile(
    r"^[^\n]*(POST REDACTED|token file|WebIdentity response|credential provider: |https?://169\.254\.|/latest/(api/token|meta-data))"
)
"""The store was not asked: what gives credentials (STS, a profile, the machine) has failed."""

_PROVIDER: Final = re.compile(r"credential provider: ([^\n]*)")
_MAY_PASS: Final = re.compile(r"\w*(Timeout|Connect|CredentialRetrieval)\w*Error:")
"""Errors of boto3."""
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
_BUSY_CODES: Final = frozenset({"SlowDown", "InternalError", "ServiceUnavailable"})
_FULL: Final = 507
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_OUTDATED: Final = _EXPIRED | {"InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound"}
"""Keys that were replaced are unknown to the store from then on."""

_OBJECT_MISSING: Final = frozenset({"", "NoSuchKey", "NotFound", "BlobNotFound", "PathNotFound", "ResourceNotFound"})
_NO_KEY: Final = "the store does not know this access key; check s3.access-key or AWS_ACCESS_KEY_ID"
_RIGHTS: Final = {
    "read": "s3:GetObject",
    "look at": "s3:GetObject",
    "write": "s3:PutObject",
    "create": "s3:PutObject",
    "delete": "s3:DeleteObject",
    "list": "s3:ListBucket",
}
_NO_BUCKET: Final = "there is no such bucket at this endpoint; create it, or correct the location or the endpoint"

_REMEDIES: Final[Mapping[str, str]] = {
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
    "InvalidBucketName": "this is no name of a bucket; correct the location",
    "InvalidAccessKeyId": _NO_KEY,
    "XAdminUserNotFound": _NO_KEY,  # of versitygw
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; check s3.secret-key or "
    "AWS_SECRET_ACCESS_KEY",
    "InvalidToken": "the session token is not valid; check s3.session.token or AWS_SESSION_TOKEN",
    "AccessDenied": "the user lacks the right to do so{right}; grant it, or give other credentials",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from the store's; set it",
    "PermanentRedirect": "the bucket is in another region; give s3.region or AWS_REGION",
    "IllegalLocationConstraintException": "the bucket is in another region; give s3.region or AWS_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region; give s3.region or AWS_REGION",
    **dict.fromkeys(
        _EXPIRED, "the credentials have expired and no newer ones were found; give a profile or a role that renews them"
    ),
}


class Answer(Frozen):
    """The status and the code of an answer; no status where there was no answer, no code to a HEAD."""

    status: int | None
    code: str = ""
    is_of_credentials: bool = False
    """Not the store's: of what gives credentials. The request was not sent."""

    @property
    def is_busy(self) -> bool:
        """Waiting helps."""
        return self.status in _BUSY

    @property
    def is_expired(self) -> bool:
        """Newer credentials help."""
        return self.code in _OUTDATED and not self.is_of_credentials

    @property
    def leaves_create_open(self) -> bool:
        """To a create: no answer, a fault, "exists already" or "in conflict" (409); any other refuses it."""
        return not self.is_of_credentials and (self.status is None or self.is_busy or self.status in (409, 412))

    @property
    def is_refusal(self) -> bool:
        return self.status in (401, 403) and not self.is_of_credentials

    @property
    def is_not_implemented(self) -> bool:
        return self.status in (405, 501) or self.code == "NotImplemented"


def answer_of(error: BaseException) -> Answer:
    """What the store has answered."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    is_of_credentials = _OF_CREDENTIALS.search(text) is not None
    return Answer(int(status[1]) if status else None, (code[1] or code[2]) if code else "", is_of_credentials)


def shown_error(error: BaseException, options: Mapping[str, str]) -> str:
    """One line of an error of the client, without secrets."""
    text = str(error)
    request, answer = _REQUEST.search(text), answer_of(error)
    if request is None:
        return without_secrets(text.split("\n\nDebug source")[0].split("<?xml")[0].strip(), options)
    retried = f" after {request[3]} more attempts" if request[3] else ""
    if answer.status is not None:
        said = f"answered {answer.status} {answer.code}".rstrip()
    else:
        said = f"got no answer ({_why_no_answer(text)})"
    return without_secrets(f"{request[1]} {request[2]} {said}{retried}", options)


def is_missing(error: BaseException) -> bool:
    """There is no such object; not, say, no such bucket. To a HEAD the store does not say what is missing."""
    return isinstance(error, FileNotFoundError) and answer_of(error).code in _OBJECT_MISSING


def store_error(error: Exception, action: str, path: str, options: Mapping[str, str]) -> StorageError:
    """The error of a call that failed, which was to do `action` with `path`."""
    answer, text = answer_of(error), shown_error(error, options)
    begin = f"cannot {action} {path}: "
    if is_missing(error):
        return NotFoundError(
            f"{begin}there is no such object; check the path, or whether the file was expired", path=path
        )
    if _ROLE_OF_MACHINE.search(text):
        kind = RetryableError if answer.status is None or answer.is_busy else InvalidRequestError
        return kind(
            f"{begin}no credentials were found, and this machine has no role ({text}); set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give s3.access-key and s3.secret-key",
            path=path,
        )
    if answer.is_of_credentials:
        return _credentials_error(answer, begin, text, str(error), path)
    remedy = _REMEDIES.get(answer.code)
    right = f" ({_RIGHTS[action]})" if path.startswith("s3") and action in _RIGHTS else ""
    if remedy is not None:
        return InvalidRequestError(f"{begin}{remedy.replace('{right}', right)} ({text})", path=path)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or answer.is_refusal:
        return InvalidRequestError(
            f"{begin}the store refuses these credentials ({text}); give the user the right to do so{right}, or other "
            "credentials",
            path=path,
        )
    if "InvalidCertificate" in str(error):
        return InvalidRequestError(
            f"{begin}{text}; name the file of the authority that signed it in AWS_CA_BUNDLE, or correct the endpoint",
            path=path,
        )
    if answer.status == _FULL:
        return RetryableError(
            f"{begin}the store is full ({text}); free some space (expire snapshots, remove orphans), then try again",
            path=path,
        )
    if answer.status is not None and not answer.is_busy:
        return InvalidRequestError(f"{begin}{text}; check the endpoint and the options of the store", path=path)
    if isinstance(error, UnknownConfigurationKeyError | ValueError) and not isinstance(error, BaseError):
        return InvalidRequestError(f"{begin}{text}; check the path and the options of the store", path=path)
    if answer.is_busy or answer.code in _BUSY_CODES:
        return RetryableError(f"{begin}{text}; the store is busy or has a fault: try again later", path=path)
    return RetryableError(f"{begin}{text}; check the endpoint and the network, then try again", path=path)


def _credentials_error(answer: Answer, begin: str, shown: str, text: str, path: str) -> StorageError:
    """What gives credentials has failed: a profile, or STS, which takes a web identity."""
    of_profile = _PROVIDER.search(shown)
    if of_profile is not None:
        kind = RetryableError if _MAY_PASS.match(of_profile[1]) else InvalidRequestError
        return kind(
            f"{begin}the profile of AWS gives no credentials ({of_profile[1].rstrip('.)')}); check ~/.aws/config and "
            "what it names",
            path=path,
        )
    if "builder error" in shown:
        shown = "its address does not begin with https:, which only boto3 takes: install freshet-lake[s3]"
    elif answer.status is not None:
        shown = f"it answered {answer.status} {answer.code}".rstrip()
    elif "POST REDACTED" in shown:
        shown = f"it gave no answer: {_why_no_answer(text)}"
    may_pass = answer.is_busy or shown.startswith("it gave no answer")
    return (RetryableError if may_pass else InvalidRequestError)(
        f"{begin}STS gives no credentials for the web identity ({shown}); check AWS_ROLE_ARN, "
        "AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ENDPOINT_URL_STS, and whether the role trusts the identity",
        path=path,
    )


def _why_no_answer(text: str) -> str:
    """From the debugging part of an error."""
    certificate = _CERTIFICATE.search(text)
    if certificate is not None:
        return f"the certificate of the server is not trusted: {certificate[1]}"
    if "InvalidContentType" in text:
        return "the server does not speak TLS there: the endpoint may have to begin with http:"
    system, kind = _SYSTEM.search(text), _NO_ANSWER.search(text)
    if system is not None:
        return system[1]
    if kind is not None and kind[1] == "Timeout":
        return "timed out"
    return "the connection was closed" if kind is None or kind[1] != "Connect" else "no connection"
