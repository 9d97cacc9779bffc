"""What administrators ask, whichever way they come: topics, sessions, groups, members, archiving.

Any node answers; what changes the cluster goes to the leader by itself, or the leader is named.
Invariant: every request gets exactly one answer, a refusal naming the thing, the reason and the
remedy; deny is the default.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from samelog.consensus import NotLeader
from samelog.format.errors import InvalidName, InvariantError
from samelog.sequencer.admin import status
from samelog.sequencer.admin.archive import serve_archive
from samelog.sequencer.admin.groups import serve_groups
from samelog.sequencer.admin.members import leader_hint, serve_membership
from samelog.sequencer.admin.resets import reset_cluster
from samelog.sequencer.admin.stage import serve_stage
from samelog.sequencer.admin.voids import void_records
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.commands import AnyCommand, CreateTopic, DeleteTopic, RetireSession
from samelog.sequencer.state.setting_commands import AlterTopic
from samelog.sequencer.state.topic_settings import problem_with
from samelog.sequencer.state.types import Rejection
from samelog.wire import admin
from samelog.wire import admin_archive as wire_archive
from samelog.wire import admin_groups as wire_groups
from samelog.wire.admin_stage import DropStage, HoldStage, PublishStage
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

log = logging.getLogger(__name__)

PARTITIONS_LIMIT = 10_000


class Denied(Exception):
    """A request that is answered with Failed."""

    def __init__(self, code: FaultCode, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.answer = admin.Failed(code, message, remedy)


class AdminDesk:
    """Answers for one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def answer(self, identity: str, request: admin.AdminRequest) -> admin.AdminResponse:
        """What is asked, as far as `identity` may."""
        if isinstance(request, HoldStage | PublishStage | DropStage):
            return await self._answer(request, identity)
        if not self._node.rights.is_admin(identity):
            text = f"{identity} is no administrator"
            return admin.Failed(FaultCode.NOT_AUTHORISED, text, "grant admin")
        return await self._answer(request)

    async def answer_allowed(self, request: admin.AdminRequest) -> admin.AdminResponse:
        """What is asked by whom the caller has let in."""
        return await self._answer(request)

    async def _answer(self, request: admin.AdminRequest, identity: str = "") -> admin.AdminResponse:
        try:
            return await self._serve(request, identity)
        except Denied as denied:
            return denied.answer
        except ChangeRefused as refused:
            return admin.Failed(refused.code, str(refused), refused.remedy)
        except NotLeader as error:
            return leader_hint(self._node, error.hint)
        except InvalidName as error:
            return admin.Failed(FaultCode.INVALID_NAME, str(error), "choose a name of the grammar")
        except TimeoutError:
            return admin.Failed(FaultCode.TIMEOUT, "no leader confirmed it in time", "ask again")
        except InvariantError:
            raise
        except Exception:  # the seam: a defect is logged, whoever asked told so, the node goes on
            log.exception("a request failed")
            what = f"the node could not answer {type(request).__name__}"
            return admin.Failed(FaultCode.INTERNAL, what, "see the node's log")

    async def _serve(self, request: admin.AdminRequest, identity: str) -> admin.AdminResponse:
        match request:
            case HoldStage() | PublishStage() | DropStage():
                return await serve_stage(self._node, identity, request)
            case admin.CreateTopic():
                return await self._create(request)
            case admin.DeleteTopic():
                return await self._delete(request)
            case admin.AlterTopic():
                return await self._alter(request)
            case wire_archive.PlanArchive() | wire_archive.LogHistory():
                return serve_archive(self._node, request)
            case admin.RetireSession():
                return await self._retire(request)
            case admin.ListTopics():
                topics = self._node.replica.machine.state.topics.values()
                return admin.Topics(tuple(status.topic_info(topic) for topic in topics))
            case admin.DescribeTopic():
                return self._describe(request.name)
            case admin.GetStatus():
                return status.status(self._node)
            case wire_groups.ListGroups() | wire_groups.DescribeGroup() | wire_groups.ResetGroup():
                return await serve_groups(self._node, request)
            case admin.ResetCluster():
                return await reset_cluster(self._node, request)
            case admin.VoidRecords():
                return await void_records(self._node, request)
            case _:
                return await serve_membership(self._node, request)

    async def _create(self, request: admin.CreateTopic) -> admin.TopicCreated:
        if not 1 <= request.partitions <= PARTITIONS_LIMIT:
            message = f"{request.partitions} partitions; allowed are 1 to {PARTITIONS_LIMIT}"
            raise Denied(FaultCode.OUT_OF_RANGE, message)
        check_settings(request.settings)
        now_ms = self._node.clock.wall_ms()
        await self._propose(
            CreateTopic(
                uuid.uuid4().hex, request.name, request.partitions, request.settings, now_ms
            )
        )
        return admin.TopicCreated(status.topic_info(self._topic(request.name)))

    async def _delete(self, request: admin.DeleteTopic) -> admin.TopicDeleted:
        topic_id = self._topic(request.name).topic_id
        outcome = await self._node.proposer.propose(DeleteTopic(topic_id))
        if isinstance(outcome, Rejection) and outcome.code != "UNKNOWN_TOPIC":  # gone is gone
            raise _denied(outcome)
        return admin.TopicDeleted(topic_id)

    async def _alter(self, request: admin.AlterTopic) -> admin.TopicAltered:
        check_settings(request.settings)
        topic_id = self._topic(request.name).topic_id
        await self._propose(AlterTopic(topic_id, request.settings, list(request.unset)))
        return admin.TopicAltered(status.topic_info(self._topic(request.name)))

    async def _retire(self, request: admin.RetireSession) -> admin.SessionRetired:
        known = self._node.replica.machine.state.sessions.get(request.session)
        session_id = "" if known is None else known.session_id
        now_ms = self._node.clock.wall_ms()
        await self._propose(RetireSession(request.session, session_id, now_ms))
        return admin.SessionRetired(request.session)

    def _describe(self, name: str) -> admin.TopicDescription:
        topic = self._topic(name)
        partitions = tuple(
            status.partition_info(self._node, number) for number in topic.partition_numbers
        )
        return admin.TopicDescription(status.topic_info(topic), partitions)

    def _topic(self, name: str) -> Any:
        topic = self._node.replica.machine.topic_named(name)
        if topic is None:
            raise Denied(
                FaultCode.UNKNOWN_TOPIC, f"there is no topic {name!r}", "samelog topic list"
            )
        return topic

    async def _propose(self, command: AnyCommand) -> None:
        outcome = await self._node.proposer.propose(command)
        if isinstance(outcome, Rejection):
            raise _denied(outcome)


def check_settings(settings: dict[str, str]) -> None:
    """Raise Denied for the first topic setting that is unknown or out of bounds."""
    for key, value in settings.items():
        problem = problem_with(key, value)
        if problem is not None:
            raise Denied(FaultCode.OUT_OF_RANGE, problem)


def _denied(rejection: Rejection) -> Denied:
    is_there = rejection.code == "TOPIC_EXISTS"
    code = FaultCode.ALREADY_EXISTS if is_there else FaultCode.UNKNOWN_TOPIC
    return Denied(code, rejection.message)
