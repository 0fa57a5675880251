"""Other programs' conversations, read from their files and stored. Begin with `importer.py`, then `load.py`.

Each foreign format is one module that recognises its files and reads them as a stream of `ForeignConversation`s;
`load` stores those. Nothing here knows a storage: everything goes through the public methods of a Store. The command
reads large sources in another process: see `reader_process`.
"""

from hansard.importers.importer import ForeignConversation, ForeignMessage, Importer
from hansard.importers.load import load
from hansard.importers.registry import importer_for, importer_named, importers
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource, open_source

__all__ = [
    "ForeignConversation",
    "ForeignMessage",
    "ImportReport",
    "ImportSource",
    "Importer",
    "importer_for",
    "importer_named",
    "importers",
    "load",
    "open_source",
]
