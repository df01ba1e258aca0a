"""The settings of a worker: one frozen, validated tree from defaults, a YAML file, the environment and flags.

effective = load(Path("config/local.yaml"), environ=os.environ, overrides=["sketch.ell=100"])
effective.settings.sketch.ell        # 100
effective.origin("sketch.ell")       # "--set"
"""

from sfd_stream.config.load import Effective, Some, load, load_some
from sfd_stream.config.model import Settings

__all__ = ["Effective", "Settings", "Some", "load", "load_some"]
