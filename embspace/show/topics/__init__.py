"""How each kind of result looks: table, figure and page, one file a topic."""
