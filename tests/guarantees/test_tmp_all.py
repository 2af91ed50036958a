
import pytest

from tests.guarantees.test_a_model_retry_is_the_same_after_every_kill import SCRIPT as A
from tests.guarantees.test_a_second_deferral_is_the_same_after_every_kill import SCRIPT as B
from tests.killed import *


@pytest.mark.parametrize("name", ["B", "A"])
def test_all(stage, name):
    script = {"A": A, "B": B}[name]
    expected, passages = left_alone(stage, script)
    print(len(passages), passages)
    bad = []
    for p in passages:
        try:
            for point, found in killed_at_each(stage, script, [p]):
                if found != expected:
                    diff = {k: (found[k], expected[k]) for k in expected if found[k] != expected[k]}
                    bad.append((point, diff))
                    print("BAD", point, str(diff)[:1500])
        except AssertionError as e:
            print("BADX", p, str(e)[:600])
            bad.append(p)
    assert not bad
