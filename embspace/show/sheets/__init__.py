"""How each kind of result looks: one file a topic, imported when such a result is shown."""
