"""`python -m embspace` is the command line."""

from importlib import import_module

if __name__ == "__main__":
    import_module("embspace_cli.main").main()
