"""A grid without a network: messages go straight into a ``ClientApp``, one after the other."""

from __future__ import annotations

import itertools
import random
import time

from flwr.app import Context, Message, Metadata, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class InProcess(Grid):
    """``clients`` nodes with state of their own; ``lost`` answer nothing, from round 1 on."""

    def __init__(self, app, clients, config=None, lost=(), shuffle=0):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
        self.app, self.lost, self.rng = app, lost, random.Random(shuffle)
        ids = [2**60 + 17 * c for c in range(clients)]
        self.contexts = {
            node: Context(
                7, node, {"partition-id": c, "num-partitions": clients}, RecordDict(), config or {}
            )
            for c, node in enumerate(ids)
        }
        self.number, self.sent, self.replies = itertools.count(1), [], []

    def restart(self, client):
        """The node starts anew: what Flower kept for it is gone."""
        list(self.contexts.values())[client].state = RecordDict()

    def send_and_receive(self, messages, *, timeout=None):
        answers = [a for m in messages if (a := self._one(m)) is not None]
        self.rng.shuffle(answers)  # whoever is first
        self.replies += answers
        return answers

    def _one(self, message):
        node = message.metadata.dst_node_id
        self.sent.append(message)
        if list(self.contexts).index(node) in self.lost:
            return None
        old = message.metadata
        letter = Message(
            content=message.content,
            metadata=Metadata(
                run_id=7, message_id=str(next(self.number)), src_node_id=1, dst_node_id=node,
                reply_to_message_id="", group_id=old.group_id, created_at=time.time(), ttl=old.ttl,
                message_type=old.message_type, src_task_id=1, dst_task_id=None,
            ),
        )  # fmt: skip
        return self.app(letter, self.contexts[node])

    def get_node_ids(self):
        return list(self.contexts)

    def get_nodes(self):
        return [NodeInfo(node_id=node) for node in self.contexts]

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError
