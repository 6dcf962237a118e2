"""torchvision's import beside a torch without CUDA, and the error beside one with it."""

import os
from pathlib import Path

import pytest
import torch
from forked import fork

ASK = """
import sys, torch
from harness_plugins import torchvision_cpu
{before}
models = torchvision_cpu.load_torchvision().models
print(models.alexnet.__name__)
"""
BROKEN = """

class Broken:
    def find_spec(name, path, target=None):
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")
sys.meta_path.insert(0, Broken)
"""


def run(before):
    """What is printed, and what an error says, where torchvision has not been imported yet."""
    process = fork(["-c", ASK.format(before=before)], os.environ, Path.cwd())
    return process.communicate(timeout=60)


def test_models_are_there_after_loading():
    out, _ = run("")
    assert out.strip() == "alexnet"


def test_loading_twice_is_harmless():
    out, _ = run("torchvision_cpu.load_torchvision()")
    assert out.strip() == "alexnet"


def test_with_a_cuda_torch_the_error_surfaces():
    _, err = run("torch.version.cuda = '13.0'" + BROKEN)
    assert "operator torchvision::nms does not exist" in err


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has CUDA here")
def test_an_error_of_another_kind_surfaces():
    _, err = run(BROKEN.replace("torchvision::nms", "elsewhere::nms"))
    assert "elsewhere::nms does not exist" in err
