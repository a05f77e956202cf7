from shells import *  # noqa: F403  the fixtures
