"""The product with a part replaced: `python -m tests.broken FILE:FUNCTION COMMAND...` calls the function, then starts.

Only tests use it, for their negative controls: the product itself has no such switch.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location

from app.cli import main

file, _, function = sys.argv.pop(1).rpartition(":")
spec = spec_from_file_location("tests.broken_part", file)
assert spec is not None
assert spec.loader is not None
module = module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
getattr(module, function)()
main()
