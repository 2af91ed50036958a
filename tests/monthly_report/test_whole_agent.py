"""A generated file through the whole agent: loaded, computed, rendered, approved and published by a worker process."""

import csv
import hashlib
import io
import json
import re
from pathlib import Path

from app.agents.monthly_report.figures import Figures
from tests.kit import Site
from tests.monthly_report.reckoning import MEASURES, check_against_stdlib, generated

SEED = 20131


def test_figures_of_a_generated_file_in_the_published_report_equal_those_of_a_stdlib_program(
    site: Site, tmp_path: Path
) -> None:
    content = generated(SEED)
    file = tmp_path / "generated.csv"
    file.write_bytes(content)
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    month = sorted({row["date"][:7] for row in rows})[2]

    worker = site.worker()
    worker.until_it_says("works as")
    run_id = site.start(input=json.dumps({"month": month, "data": str(file)}))
    site.until_state(run_id, "waiting")
    site.approve(run_id)
    site.until_state(run_id, "completed")

    [step] = site.rows(
        "select o.output::jsonb as output from dbos.operation_outputs o where o.workflow_uuid = %s "
        "and o.function_name like 'tool:monthly_figures:%%'",
        f"{run_id}:0",
    )
    figures = Figures.model_validate(step["output"]["value"])
    assert figures.month.month == month
    assert figures.data_set == hashlib.sha256(content).hexdigest()
    check_against_stdlib(figures, content)

    [publication] = site.world.publications()
    this = [row for row in rows if row["date"].startswith(month)]
    expected = [f"{sum(int(row[measure]) for row in this):,}" for measure in MEASURES]
    assert re.findall(r"\*\*([\d,]+)(?: flights)?\*\*", publication.body)[:4] == expected
    assert hashlib.sha256(publication.body.encode()).hexdigest() == publication.sha256
    [artifact] = site.rows("select sha256, content from surefoot.artifacts where run_id = %s", run_id)
    assert (artifact["sha256"], bytes(artifact["content"]).decode()) == (publication.sha256, publication.body)
