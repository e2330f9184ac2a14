"""The options of a table: their keys, their texts, and what they mean; a leaf of the house.

Other packages import from here.
"""

from freshet.storage.options.aggregate_function import CAPABILITIES
from freshet.storage.options.choices import DYNAMIC_BUCKET, ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions, check_option_keys
from freshet.storage.options.declaration import IMMUTABLE_KEYS, LOCAL_FOLDERS, local_folders
from freshet.storage.options.engine import EngineOptions, SequenceGroup, engine_options
from freshet.storage.options.risky import layout_warnings, risky_options, unheeded_options
from freshet.storage.options.secrets import HIDDEN, is_secret, resolved_option, shown_options, without_secrets
from freshet.storage.options.values import option_texts

__all__ = [
    "CAPABILITIES",
    "DYNAMIC_BUCKET",
    "HIDDEN",
    "IMMUTABLE_KEYS",
    "LOCAL_FOLDERS",
    "ChangelogProducer",
    "CoreOptions",
    "EngineOptions",
    "MergeEngine",
    "SequenceGroup",
    "check_option_keys",
    "engine_options",
    "is_secret",
    "layout_warnings",
    "local_folders",
    "option_texts",
    "resolved_option",
    "risky_options",
    "shown_options",
    "unheeded_options",
    "without_secrets",
]
