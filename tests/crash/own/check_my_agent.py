from collections import Counter
from pathlib import Path


def test_my_agent(crash_matrix, pytestconfig):
    log = Path(pytestconfig.rootpath, "letters.log")  # what the post office has, a line a letter

    def letters(run_id):
        return Counter(line.partition(" ")[2] for line in log.read_text().splitlines() if line.startswith(run_id))

    report = crash_matrix("post", "hello", agents="my_agent:post", role="clerk", count=letters, cases=6)
    print(report)
