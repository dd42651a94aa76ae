"""`pilotlight schema`: the GraphQL schema as a file."""

from pathlib import Path
from typing import Annotated

import typer

from server.errors import StartupProblem

SDL_FILE = Path(__file__).parents[2] / "schema" / "schema.graphql"
RELEASED_FILE = SDL_FILE.with_name("released.graphql")
CHANGES_FILE = SDL_FILE.parents[1] / "CHANGELOG.md"

sdl = typer.Typer(no_args_is_help=True, help="The GraphQL schema as a file.")


@sdl.command("print")
def schema_print() -> None:
    """Print the schema; `pilotlight schema print > schema/schema.graphql` renews the file."""
    from schema.root import schema

    typer.echo(schema.as_str())


@sdl.command("errors")
def schema_errors() -> None:
    """Print every error code; `pilotlight schema errors > docs/errors.md` renews the page."""
    from server.cli.print_errors import errors_page

    typer.echo(errors_page(), nl=False)


@sdl.command("check")
def schema_check(
    released: Annotated[Path, typer.Option(help="The schema of the last release.")] = RELEASED_FILE,
    changes: Annotated[Path, typer.Option(help="The list of changes, newest first.")] = CHANGES_FILE,
) -> None:
    """Check that the committed file is the schema of this code, and that the changelog names every breaking change."""
    from schema.compatibility import undeclared_changes
    from schema.root import schema

    present = schema.as_str()
    if not SDL_FILE.exists() or SDL_FILE.read_text().strip() != present.strip():
        raise StartupProblem(f"{SDL_FILE.name} is not what the code has; run `make schema` and commit it")
    changelog = changes.read_text() if changes.exists() else ""
    breaking = undeclared_changes(released.read_text(), present, changelog)
    if breaking:
        lines = "\n".join(f"  `{change.coordinate}`: {change.description}" for change in breaking)
        raise StartupProblem(f"the schema has breaking changes that {changes.name} does not name:\n{lines}")
    typer.echo("the schema file is fresh, and every breaking change is in the changelog")
