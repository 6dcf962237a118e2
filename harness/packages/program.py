"""A classifier as a list of tensor operations: what is kept of it needs no code of its own.

A learner returns a Python object. What this does to a batch of images is written down operation by
operation, with the tensors that it uses; whoever runs the list needs neither the learner nor its
package, and nothing but the operations named here is ever called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from harness.api import Classifier, IntegrityError, UsageError

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

BATCH = 64
"""Images of one batch: the list holds for so many, and a last batch is filled up."""
PICK = "getitem"
"""One of the results of an operation that has several."""
ALLOWED = {
    "default": (
        "abs addmm amax avg_pool2d bmm _adaptive_avg_pool2d cat clamp clamp_min clone "
        "constant_pad_nd convolution detach elu exp expand gelu hardtanh leaky_relu log "
        "_log_softmax max_pool2d_with_indices mean mm native_batch_norm native_group_norm "
        "native_layer_norm neg permute relu sigmoid silu _softmax softplus sqrt t tanh "
        "unsqueeze _unsafe_view upsample_bilinear2d _upsample_bilinear2d_aa view"
    ),
    "Scalar": "add div mul rsub sub",
    "Tensor": "add div mul slice sub",
    "dim": "mean squeeze",
    "Tensor_Scalar": "pow",
    "int": "select transpose",
    "correction": "std var",
    "dim_IntList": "sum",
}
"""Operations by overload: they make tensors of others, change none, and draw no random number."""
KNOWN = frozenset(
    f"aten.{name}.{kind}" for kind, names in ALLOWED.items() for name in names.split()
)
_FAULTS = (
    *(RuntimeError, IndexError, KeyError, TypeError, ValueError),
    *(AttributeError, OverflowError, MemoryError),
)
"""What steps of a stranger's making may raise."""
_WRONG = "asks each time anew with random numbers of its own, which no list of operations holds"


class Step(BaseModel):
    """One operation. Inputs are numbers, lists, {"step": i} and {"tensor": name}."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    inputs: tuple[Any, ...]
    options: dict[str, Any] = {}


@dataclass(frozen=True)
class Program:
    """Step 0 is the batch of images [BATCH, *shape]; the last one gives logits."""

    steps: tuple[Step, ...]
    tensors: Mapping[str, Tensor]

    def logits(self, images: Tensor) -> Tensor:
        """[n, classes] of standardised images [n, *shape], whatever n."""
        found = []
        with torch.no_grad():
            for part in torch.split(images, BATCH):
                short = BATCH - len(part)
                filled = torch.cat([part, part[-1:].expand(short, *part.shape[1:])])
                found.append(self._followed(filled)[: len(part)])
        return torch.cat(found) if found else images.new_zeros(0, 0)

    def _followed(self, images: Tensor) -> Tensor:
        """What the steps give; IntegrityError where they are none that can be followed."""
        try:
            return self._run(images)
        except _FAULTS as error:
            words = " ".join(str(error).split())[:200]
            reason = "".join(each if each.isprintable() else "?" for each in words)
            raise IntegrityError(f"the model's steps cannot be followed: {reason}") from None

    def _run(self, images: Tensor) -> Tensor:
        values: list[Any] = [images]
        for step in self.steps:
            operation = _operation(step.op)
            inputs = [self._read(each, values) for each in step.inputs]
            options = {k: self._read(v, values) for k, v in step.options.items()}
            values.append(operation(*inputs, **options))
        logits = values[-1]
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(images):
            raise ValueError("the last one does not give a row of logits for each image")
        return logits

    def _read(self, written: Any, values: list[Any]) -> Any:
        if isinstance(written, list | tuple):
            return [self._read(each, values) for each in written]
        if isinstance(written, dict):
            ((kind, name),) = written.items()
            return values[name] if kind == "step" else self.tensors[name]
        return written


def program_of(classifier: Classifier, shape: tuple[int, ...], learner: str) -> Program:
    """What a classifier does to standardised images [n, *shape], on the CPU.

    UsageError where it cannot be written down: it draws random numbers, or uses an operation that
    is not known here.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    generator = torch.Generator().manual_seed(0)
    example, other = (torch.randn(BATCH, *shape, generator=generator) for _ in range(2))

    def asked(images: Tensor) -> Tensor:
        return classifier.logits(images)

    with torch.no_grad():
        wanted = classifier.logits(other)
        if not bool(wanted.isfinite().all()):
            raise UsageError(
                f"What '{learner}' learned cannot be kept: it gives logits that are not finite."
            )
        if not torch.equal(wanted, classifier.logits(other)):
            raise UsageError(f"What '{learner}' learned cannot be kept: it {_WRONG}.")
        traced = make_fx(torch.func.functionalize(asked, remove="mutations"))(example)
    traced.graph.eliminate_dead_code()
    program = _listed(traced, learner)
    if not torch.allclose(program.logits(other), wanted, rtol=1e-4, atol=1e-5):
        raise UsageError(f"What '{learner}' learned cannot be kept: it {_WRONG}.")
    return program


def _listed(traced: GraphModule, learner: str) -> Program:
    """A traced graph as steps; numbers of nodes become places in the list."""
    written: dict[Node, Any] = {}
    steps: list[Step] = []
    tensors: dict[str, Tensor] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            written[node] = {"step": 0}
        elif node.op == "get_attr":
            name = str(node.target)
            tensors[name] = getattr(traced, name).detach().cpu().contiguous()
            written[node] = {"tensor": name}
        elif node.op == "output":
            last = written[node.args[0]]
            if last != {"step": len(steps)}:
                raise UsageError(f"What '{learner}' learned gives logits that no step makes.")
        else:
            steps.append(_step(node, written, learner))
            written[node] = {"step": len(steps)}
    return Program(tuple(steps), tensors)


def _step(node: Node, written: Mapping[Node, Any], learner: str) -> Step:
    op = PICK if getattr(node.target, "__name__", "") == PICK else str(node.target)
    if op != PICK and op not in KNOWN:
        raise UsageError(
            f"What '{learner}' learned cannot be kept: it computes {op}, which is none of the "
            "operations that a model on disk may have."
        )
    inputs = tuple(_plain(each, written, learner) for each in node.args)
    options = {key: _plain(each, written, learner) for key, each in node.kwargs.items()}
    return Step(op=op, inputs=inputs, options=options)


def _plain(value: Any, written: Mapping[Node, Any], learner: str) -> Any:
    if isinstance(value, torch.fx.Node):
        return written[value]
    if isinstance(value, list | tuple):
        return [_plain(each, written, learner) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise UsageError(f"What '{learner}' learned cannot be kept: it computes with {value}.")


def _operation(name: str) -> Any:
    if name == PICK:
        return _picked
    if name not in KNOWN:
        raise IntegrityError(f"the model has a step {name[:80]!a}, which no model may have")
    _, operation, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, operation), overload)


def _picked(values: Any, at: Any) -> Tensor:
    """One of several tensors; TypeError for anything else."""
    found = values[at] if isinstance(values, list | tuple) and isinstance(at, int) else None
    if not isinstance(found, Tensor):
        raise TypeError(f"{PICK} is not of the tensors that a step gives")
    return found
