"""What a receiver takes, and what it calls a fault."""

from __future__ import annotations

import pytest

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.receiver import Receiver, check_common


def at(file: int, byte: int) -> Receiver:
    receiver = Receiver()
    receiver.expect(1, file, byte)
    return receiver


def test_contiguous_data_moves_the_position() -> None:
    receiver = at(2, 10)
    receiver.receive(1, 2, 10, 90)
    receiver.receive(1, 2, 100, 1)
    assert receiver.position(1) == (2, 101)


@pytest.mark.parametrize(("file", "byte"), [(2, 9), (2, 11), (1, 10), (3, 0), (3, 10)])
def test_gaps_and_overlaps_are_faults_and_move_nothing(file: int, byte: int) -> None:
    receiver = at(2, 10)
    with pytest.raises(ProtocolFault) as caught:
        receiver.receive(1, file, byte, 5)
    assert caught.value.code is FaultCode.GAP
    assert receiver.position(1) == (2, 10)


def test_a_sealed_file_leads_to_the_next() -> None:
    receiver = at(2, 10)
    receiver.sealed(1, 2, 10, 77)
    assert receiver.position(1) == (77, 0)
    receiver.receive(1, 77, 0, 5)


@pytest.mark.parametrize("sealed", [(2, 9, 3), (2, 11, 3), (1, 10, 3), (2, 10, 2), (2, 10, 1)])
def test_a_file_sealed_elsewhere_is_a_gap(sealed: tuple[int, int, int]) -> None:
    receiver = at(2, 10)
    with pytest.raises(ProtocolFault) as caught:
        receiver.sealed(1, *sealed)
    assert caught.value.code is FaultCode.GAP
    assert receiver.position(1) == (2, 10)


def test_unknown_handles_are_faults_but_forgotten_ones_can_be_told_apart() -> None:
    receiver = at(0, 0)
    with pytest.raises(ProtocolFault) as caught:
        receiver.receive(2, 0, 0, 1)
    assert caught.value.code is FaultCode.PROTOCOL
    assert receiver.expects(1)
    receiver.forget(1)
    receiver.forget(1)
    assert not receiver.expects(1)


def test_a_handle_is_expected_once() -> None:
    with pytest.raises(ValueError, match="already"):
        at(0, 0).expect(1, 0, 0)


def test_no_batch_before_a_position_proves_nothing() -> None:
    check_common(1, (0, 0), (-1, 0), None)


def test_the_same_batch_passes() -> None:
    check_common(1, (0, 90), (10, 0xDEADBEEF), (90, 0xDEADBEEF))


@pytest.mark.parametrize("own", [None, (90, 1), (80, 0xDEADBEEF)])
def test_another_batch_before_a_position_is_a_fork(own: tuple[int, int] | None) -> None:
    with pytest.raises(ProtocolFault) as caught:
        check_common(1, (0, 90), (10, 0xDEADBEEF), own)
    assert caught.value.code is FaultCode.FORK
