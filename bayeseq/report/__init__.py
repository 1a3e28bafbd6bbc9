"""Tagged text and test results that one can read: in a notebook, a terminal, or on a page."""

from bayeseq.report.sentence import TaggedSentence
from bayeseq.report.showing import Shown, show
from bayeseq.report.tagging import tag_sentences
from bayeseq.report.writing import report_html, write_report

__all__ = ["Shown", "TaggedSentence", "report_html", "show", "tag_sentences", "write_report"]
