"""Every defect of `make chaos-mutants` can be planted, and what must catch it exists."""

import re
from pathlib import Path

import pytest

from tests.chaos.mutant_list import MUTANTS, Mutant
from tests.chaos.mutants import Misplaced, place, planted, planted_source
from tests.chaos.verdict import INVARIANTS
from tests.support.processes import ROOT

by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])


@by_name
def test_a_mutant_replaces_one_piece_of_the_product_and_compiles(mutant: Mutant):
    assert planted_source(ROOT, mutant) != place(ROOT, mutant).read_text()


@by_name
def test_what_must_catch_a_mutant_exists(mutant: Mutant):
    assert bool(mutant.test) != bool(mutant.invariants)
    assert set(mutant.invariants) <= set(INVARIANTS)
    if mutant.test:
        file, _, name = mutant.test.partition("::")
        name = name.partition("[")[0]
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_there_are_enough_mutants_and_chaos_itself_catches_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    assert len([mutant for mutant in MUTANTS if mutant.invariants]) >= 6


def test_a_mutant_is_planted_for_a_while_and_only_where_its_text_is_once(tmp_path: Path):
    (tmp_path / "server").mkdir()
    (tmp_path / "schema").mkdir()
    file = tmp_path / "server" / "part.py"
    file.write_text("answer = 1\n")
    mutant = Mutant("another answer", "answer = 1", "answer = 2", invariants=(1,))

    with planted(tmp_path, mutant):
        assert file.read_text() == "answer = 2\n"
    assert file.read_text() == "answer = 1\n"

    (tmp_path / "schema" / "copy.py").write_text("answer = 1\n")
    with pytest.raises(Misplaced, match=r"server/part\.py \(1\), schema/copy\.py \(1\)"), planted(tmp_path, mutant):
        pass
    file.write_text("")
    (tmp_path / "schema" / "copy.py").unlink()
    with pytest.raises(Misplaced, match="nowhere"), planted(tmp_path, mutant):
        pass
