"""`python -m freshet` is the command `freshet`."""

from __future__ import annotations

from freshet.pipeline.commands.command_line import main

if __name__ == "__main__":
    main()
