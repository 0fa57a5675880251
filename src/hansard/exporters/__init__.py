"""Conversations in the formats of other programs: training data, pages for people, tables, trees to move back.

Begin with `exporter.py`. Each format is one module that writes a stream of `ExportedConversation`s as bytes;
`source.py` chooses and reads them. Hansard's own, lossless format is in `hansard.transfer`.
"""

from hansard.exporters.exporter import ExportedConversation, Exporter, TreeMessage
from hansard.exporters.registry import exporter_named, exporters
from hansard.exporters.report import ExportReport

__all__ = ["ExportReport", "ExportedConversation", "Exporter", "TreeMessage", "exporter_named", "exporters"]
