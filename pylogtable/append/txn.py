"""The txn of an append, as callers give it: checked, and in the form of the format."""

from __future__ import annotations

from pylogtable.append.plan import ExpectedLast
from pylogtable.arguments import NOT_GIVEN, check_number
from pylogtable.errors import InvalidRequestError
from pylogtable.format.json_codec import check_app_id, check_origin
from pylogtable.format.model import Txn


def parse_txn(txn: tuple[str, int] | None, origin: str | None = None) -> Txn | None:
    if txn is None:
        if origin is not None:
            raise InvalidRequestError(
                f"origin {origin!r} is given without a txn; give both or neither"
            )
        return None
    if origin is not None:
        check_origin(origin)
    match txn:
        case (str(app_id), int(version)) if (
            app_id and not isinstance(version, bool) and 0 <= version < 2**63
        ):
            check_app_id(app_id)
            return Txn(app_id=app_id, version=version, origin=origin)
    raise InvalidRequestError(f"txn must be (app_id, version from 0 to 2**63 - 1), not {txn!r}")


def check_expected_last(txn: Txn | None, expected_last: ExpectedLast) -> None:
    """Raise if `expected_last` is not the version of a txn, or None, or comes without a txn."""
    if expected_last is NOT_GIVEN:
        return
    if txn is None:
        raise InvalidRequestError(
            f"expected_last={expected_last!r} is given without a txn: it is the last txn of an app "
            "id; give txn=(app_id, version) too"
        )
    if expected_last is not None:
        check_number("expected_last", expected_last)
