"""Challenges: encodings for strangers to attack, and a commitment to what they hide.

Here is how a pack, an opening and a submission are laid out: their files, arrays and words.
"""

from __future__ import annotations

DESCRIPTION = "challenge.json"
PACKAGE = "challenge.release"
README = "README.txt"
IMAGES, DECRYPTIONS, ROWS, TARGETS = "images", "decryptions", "rows", "targets"
"""Arrays of a submission."""

PACK = """\
A pack is a folder of three files. Nothing in it is code, and none of our software is needed.

challenge.release is a package as `harness release` writes them: one safetensors file
(https://github.com/huggingface/safetensors) of float32 arrays, two for each round:
  encodings.0, encodings.1, …  [n, ...]: every private image, encoded once
  labels.0, labels.1, …        [n, classes]: the soft label of each encoding
The rows of each round are in a secret order of their own. `harness.release` in the file's
metadata is JSON: the law, which is the defense with all its parameters, shapes, class names, the
SHA-256 of every array, and a seal over all of it. Encodings are made of standardised images,
(image - mean) / std for each channel, where images [channels, height, width] lie between 0 and 1;
mean and std are given, one for all channels or one for each.

challenge.json says what is public besides: the dataset, and in `public` which of its images are
not private. `release` is the seal of the package, and `readme` the SHA-256 of the third file.
`commitment` is the SHA-256 of the file with the truth, which holds 32 random bytes besides, so
that no guess of the truth can be tested against it.

A submission is one safetensors file with one of these:
  images       [m, c, h, w], values 0 to 1: at most one for each private image. The judge pairs
               them with the private images one to one, so that the squared errors sum to least,
               unless `rows` [m] whole numbers name an encoding each, counted round by round
               from 0, or `targets` [m] name private images
  decryptions  [rounds, n, c, h, w], values 0 to 1: one image for each encoding
"""

MEASURES = """\
Measures, as the InstaHide challenge has them: the decryption of an encoding is compared with each
private image in it. max_ssim, mean_ssim, min_l2, max_l2 and mean_l2 are the largest, mean and
smallest of these, then averaged over all encodings; the challenge ranks by max_ssim, and of L2
its rules name the maximum and its table the minimum. Of `images`, the decryption of an encoding is
the one that belongs to its primary private image: who submits them need not know which that is.
A private image without one is taken to be the dataset's mean colour.
SSIM is the harness's metric of that name, between -1 and 1. L2 is the mean squared difference of
images between -1 and 1. The challenge does not define it, but its table has an attack of
min L2 .00 and mean L2 .27, and unrelated images of CIFAR-10 are .50 apart in this scale.
"""
