"""What can go wrong, in one clear sentence each."""


class EmbspaceError(Exception):
    """Input that cannot be worked with: the message says what was given, expected, and to do."""


class ModelError(EmbspaceError):
    """A checkpoint that is missing, incomplete, conflicting or of an unknown shape."""


class CannotRunError(ModelError):
    """No live model can be built here to check a reading by; the checkpoint may be fine."""


class VocabularyError(EmbspaceError):
    """A token, filter or embedding that cannot be used."""


class CertificateError(EmbspaceError):
    """Our reading of the weights does not rebuild the model's own outputs."""


class ResourceError(EmbspaceError):
    """The work would not fit into this machine's memory."""


class TextError(EmbspaceError):
    """Sentences, positions or data that cannot be read or do not suit the model."""


class MapsError(EmbspaceError):
    """Fitted maps that cannot be read, or belong to other weights."""
