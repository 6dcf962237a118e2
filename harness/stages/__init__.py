"""The stages of one evaluation: one file each, each a function of typed, frozen inputs."""
