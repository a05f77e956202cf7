"""The answers of a survey entry of which a room defines nothing."""

from sonde.core.errors import Finding
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry


class Quiet(SurveyEntry):
    weight, spread = 1.0, 2.0

    def needs_s(self, call: Call) -> float:
        return 0.0

    def measure(self, call):
        raise NotImplementedError

    def judge(self, tree, name):
        return Judgement("")

    def compare(self, before, now, names):
        return Compared()


def test_without_a_word_of_its_room_a_finding_counts_and_drains_nobody():
    finding = Finding("lab.slow", "it is slow")
    assert not Quiet().unfit(finding)
    assert not Quiet().drains(finding)
