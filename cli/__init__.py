"""What a person types: one thin module a command. Typer and Rich live here only."""
