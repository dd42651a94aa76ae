"""Adds the commands for users to the `pilotlight` command."""

import typer

from server.cli.user import access, contexts, create, market, mcp, money, reads, verbs

# What follows the first argument belongs to it, options included.
REST = {"allow_interspersed_args": False}


def register(app: typer.Typer, tokens: typer.Typer) -> None:
    for command in (
        create.create,
        reads.ls,
        reads.get,
        verbs.start,
        verbs.stop,
        verbs.restart,
        verbs.move,
        verbs.rm,
        verbs.update,
        verbs.extend,
        reads.wait,
        reads.watch,
        reads.events,
        reads.logs,
        access.ssh,
        access.cp,
        create.quote,
        market.market,
        market.update_wait,
        money.spend,
        mcp.mcp,
        contexts.completion,
    ):
        app.command(context_settings=REST if command is access.ssh else None)(command)
    app.command("ps", hidden=True)(reads.ls)
    app.command("down", hidden=True)(verbs.rm)
    app.add_typer(contexts.contexts, name="context")
    app.add_typer(market.alerts, name="alert")
    app.add_typer(money.budgets, name="budget")
    app.add_typer(money.volumes, name="volume")
    tokens.command("list")(contexts.list_tokens)
    tokens.command("revoke")(contexts.revoke_token)
