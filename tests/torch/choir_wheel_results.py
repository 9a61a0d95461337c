"""choir_wheel_results.py - what came of each of PyTorch's own tests, one JSON object a line as it ends."""
import json
import time
import unittest


class Results(unittest.TestResult):
    """Each test is told of once, whatever became of it: the first that went wrong, else its end."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def startTest(self, test):
        super().startTest(test)
        self.began, self.told = time.monotonic(), False

    def stopTest(self, test):
        self.tell(test, "failed", "it ended without a result")
        super().stopTest(test)

    def tell(self, test, what, why=""):
        if self.told:
            return
        self.told = True
        name = test.id().rsplit(".", 1)[-1]
        print(json.dumps({"test": name, "what": what, "why": why[-3000:], "s": round(time.monotonic() - self.began, 1)}),
              file=self.out, flush=True)  # fmt: skip

    def addSuccess(self, test):
        self.tell(test, "passed")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

    def addFailure(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.tell(test, "failed", f"{subtest}: {self._exc_info_to_string(err, test)}")

    def addExpectedFailure(self, test, err):
        self.tell(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.tell(test, "failed", "it passed, and is marked as one that fails")
