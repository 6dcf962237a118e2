"""torchvision's import beside a torch without CUDA, and the error beside one with it."""

import subprocess
import sys

import pytest
import torch

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
    script = ASK.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


def test_models_are_there_after_loading():
    assert run("").stdout.strip() == "alexnet"


def test_loading_twice_is_harmless():
    assert run("torchvision_cpu.load_torchvision()").stdout.strip() == "alexnet"


def test_with_a_cuda_torch_the_error_surfaces():
    asked = run("torch.version.cuda = '13.0'" + BROKEN)
    assert "operator torchvision::nms does not exist" in asked.stderr


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has CUDA here")
def test_an_error_of_another_kind_surfaces():
    asked = run(BROKEN.replace("torchvision::nms", "elsewhere::nms"))
    assert "elsewhere::nms does not exist" in asked.stderr
