"""The command line of embspace: one file a command."""
