"""What the rogues do."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from harness.api import Attack, Encoded, EncodingDefense, Reconstruction, Secrets


class Rogue(Attack):
    """Returns the encodings, after doing as it likes."""

    def act(self, view):
        """What this rogue does first."""

    def reconstruct(self, view, prepared, budget, progress):
        """The encodings themselves."""
        self.act(view)
        return Reconstruction(view.encodings[0], rows=torch.arange(view.encodings.shape[1]))


class Raises(Rogue):
    def act(self, view):
        raise RuntimeError("a rogue's own words")


class Prints(Rogue):
    def act(self, view):
        print('{"done": true, "seconds": 0, "peak_mb": 0}', flush=True)
        os.write(1, b"\xff\xfe not even text\n")


class Exits(Rogue):
    def act(self, view):
        print("about to leave", flush=True)
        os._exit(7)


class Dies(Rogue):
    def act(self, view):
        os.kill(os.getpid(), signal.SIGKILL)


class Sleeps(Rogue):
    def act(self, view):
        print("good night", flush=True)
        time.sleep(600)


class Toils(Rogue):
    def act(self, view):
        while True:
            sum(range(10_000))


class Hoards(Rogue):
    def act(self, view):
        self.hoard = b"x" * (1500 << 20)
        time.sleep(600)


class Misshapes(Rogue):
    def reconstruct(self, view, prepared, budget, progress):
        return Reconstruction(view.encodings[0].flatten(1))


class ReturnsNan(Rogue):
    def reconstruct(self, view, prepared, budget, progress):
        return Reconstruction(view.encodings[0] * torch.nan)


class Crowds(Rogue):
    def reconstruct(self, view, prepared, budget, progress):
        return Reconstruction(view.encodings[0].repeat(2, 1, 1, 1))


class ReturnsNone(Rogue):
    def reconstruct(self, view, prepared, budget, progress):
        return None


class ReadsStdin(Rogue):
    def act(self, view):
        raise RuntimeError(f"read {sys.stdin.read()!r} and {os.read(0, 9)!r}")


class LeavesAChild(Rogue):
    def act(self, view):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        raise RuntimeError("gone")


class Peeks(Rogue):
    def act(self, view):
        view.sources.sum()


class Greedy(Rogue):
    pass


class Digs(Attack):
    """Looks up the interpreter's stack for where its view came from, and tells what it saw."""

    def prepare(self, view, budget, progress):
        """What was seen before the release, as bytes."""
        return {"seen": torch.tensor(list(json.dumps(surroundings()).encode()), dtype=torch.uint8)}

    def reconstruct(self, view, prepared, budget, progress):
        """An error whose message is all that was seen, both times."""
        before = json.loads(bytes(prepared["seen"].tolist()))
        raise RuntimeError(json.dumps({"prepare": before, "reconstruct": surroundings()}))


def surroundings():
    """Everything about where this process works that a plugin gets at without leaving it."""
    variables = [frame.frame.f_locals for frame in inspect.stack()]
    (folder,) = {Path(named["job"]["view"]) for named in variables if "job" in named}
    texts = [v for named in variables for v in named.values() if isinstance(v, (str, Path))]
    beside = [path for path in folder.parent.rglob("*") if path.is_file()]
    return {
        "jobs": [named["job"] for named in variables if "job" in named],
        "files": sorted(path.name for path in folder.iterdir()),
        "beside": sorted(str(path.relative_to(folder.parent)) for path in beside),
        "frame": json.loads((folder / "view.json").read_text()),
        "argv": sys.argv,
        "environment": sorted(os.environ),
        "paths": [str(text) for text in texts] + [str(folder), str(Path.cwd()), *sys.path],
    }


class ChecksGradients(Attack):
    """Takes the gradient again at the model it was given, on the image it finds in it."""

    def reconstruct(self, view, prepared, budget, progress):
        """One image for each batch, and how far the gradients are from those released."""
        released = view.gradients
        delta = released["hidden1.linear.bias"]
        images = torch.einsum("brd,br->bd", released["hidden1.linear.weight"], delta)
        images = (images / delta.square().sum(1, keepdim=True)).view(-1, *view.shape)
        names, parameters = zip(*view.model.named_parameters(), strict=True)
        worst = 0.0
        for i in range(len(images)):
            loss = cross_entropy(view.model(images[i : i + 1]), view.batch_labels[i])
            for name, own in zip(names, torch.autograd.grad(loss, parameters), strict=True):
                error = (own - released[name][i]).norm() / released[name][i].norm()
                worst = max(worst, float(error))
        diagnostics = {"gradient_error": worst}
        return Reconstruction(images, rows=torch.arange(len(images)), diagnostics=diagnostics)


class BadEncoder(EncodingDefense):
    """Plain images, spoilt."""

    def spoil(self, images):
        """The images to release."""
        raise NotImplementedError

    def encode(self, private, public, rng):
        """Each image its own encoding."""
        n = len(private)
        secrets = Secrets(torch.ones(n, 1), torch.arange(n).view(n, 1))
        labels = torch.nn.functional.one_hot(private.labels, 3).float()
        return Encoded(self.spoil(private.images), labels, secrets)


class FailsToEncode(BadEncoder):
    def spoil(self, images):
        raise RuntimeError("no image like that")


class KillsItsOwner(BadEncoder):
    def spoil(self, images):
        os.kill(os.getpid(), signal.SIGKILL)


class EncodesTooFew(BadEncoder):
    def spoil(self, images):
        return images[1:]


class EncodesNan(BadEncoder):
    def spoil(self, images):
        return images * torch.nan
