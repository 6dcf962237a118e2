"""Send every build hook that pip starts to the inert backend beside this file.

pip names the backend that an archive asks for, and a folder of the archive to import it from, in
the environment of the hook's process: `PEP517_BUILD_BACKEND` once, `_PYPROJECT_HOOKS_…` now.
Neither may have a say here.
"""

import os

for _name in list(os.environ):
    if "BACKEND_PATH" in _name:
        del os.environ[_name]
    elif "BUILD_BACKEND" in _name:
        os.environ[_name] = "setuptools.build_meta"
