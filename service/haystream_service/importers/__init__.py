"""Mail archives and tables, as items: iterators of `ItemRecord`, with a `Skipped` where one could not be made."""

from haystream_service.importers.aliases import Aliases, read_aliases
from haystream_service.importers.mail import mail_reader, read_eml, read_maildir, read_mbox
from haystream_service.importers.making import Making
from haystream_service.importers.results import Imported, ImportFailed, Skipped
from haystream_service.importers.rules import money_or_finance
from haystream_service.importers.tables import read_csv
from haystream_service.importers.uris import UriTemplate

__all__ = [
    "Aliases",
    "ImportFailed",
    "Imported",
    "Making",
    "Skipped",
    "UriTemplate",
    "mail_reader",
    "money_or_finance",
    "read_aliases",
    "read_csv",
    "read_eml",
    "read_maildir",
    "read_mbox",
]
