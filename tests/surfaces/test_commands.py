"""What the commands answer: documents with every field, words for people, exit codes, names for things."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from codefleet import __version__
from codefleet.app import glance
from codefleet.core.model import Activity, Agent, Engine, Hold, Pause, Question, Status, Task
from codefleet.core.transitions import runs
from codefleet.testing import samples

if TYPE_CHECKING:
    from tests.surfaces.conftest import Person

    from codefleet.ports import Store

TASK = """
task_id title description status priority assigned_to depends_on blocked_by file_scope labels branch_name pr_url
result_summary error_message estimated_complexity actual_tokens_used actual_cost_usd actual_duration_ms created_at
updated_at assigned_at started_at completed_at id project cwd target agent model origin expects epoch attempts rounds
bounces interruptions hold awaiting outcome proven question evidence batch revision
""".split()
RUN = """
number agent agent_id model status exit_code exit_known started_at ended_at session_id workspace branch base head usage
cost_usd files result outcome reason engine host
""".split()
AGENT = """
agent_id name type status current_task_id capabilities worktree_path session_id last_heartbeat tasks_completed
tasks_failed total_tokens_used total_cost_usd created_at updated_at kind engine host
""".split()


def every() -> list[Task]:
    """A task in each state, each under its own id."""
    tasks = [task for group in samples.every().values() for task in group]
    return [replace(task, id=f"{number:08}") for number, task in enumerate(tasks)]


# ------------------------------------------------------------------------------------------------------ documents


@pytest.mark.parametrize("task", every(), ids=lambda task: f"{task.status.value}-{task.id[-2:]}")
def test_a_task_in_any_state_is_shown_with_every_field_and_in_words(person: Person, task: Task) -> None:
    person.store(task)
    shown = person("show", task.id, "--json").data
    assert set(TASK) <= set(shown)
    assert shown["status"] == task.status.value
    assert shown["why"], "something always says why it is where it is"
    for run in shown["runs"]:
        assert set(RUN) == set(run)
    words = person("show", task.id)
    assert words.code == 0
    assert words.out.startswith(f"id: {task.id}\ntitle: Fix it\nstatus: {task.status.value}\ncwd: -\ncoder: ")
    assert person("why", task.id).code == 0


def test_times_are_utc_and_missing_values_are_null(person: Person) -> None:
    task = person("add", "First", "--json").data
    assert task["created_at"].endswith("Z")
    assert task["completed_at"] is None
    assert task["hold"] is None
    assert task["proven"] is None


def test_an_inherited_agent_is_marked_as_default_and_a_chosen_one_is_bare(person: Person) -> None:
    inherited, chosen = person.added("First"), person.added("Second", "--agent", "scripted")
    assert "coder: claude (default)\n" in person("show", inherited).out
    assert "coder: scripted\n" in person("show", chosen).out
    assert person("show", chosen, "--json").data["effective"]["agent_inherited"] is False


def test_an_agent_that_works_is_seen_with_its_task_and_a_gone_engine_s_agents_are_offline(person: Person) -> None:
    person.store(samples.started(), Agent(id="runner-1", type="scripted", engine="e_1", host="h"))
    shown = person("show", "runner-1", "--json").data
    assert set(AGENT) <= set(shown)
    assert shown["status"] == "offline"
    assert "runner-1" not in person("status").out


def test_status_has_every_field_and_says_what_waits_for_a_person(person: Person) -> None:
    question = Question(id="q_agent:claude", text="log in again", asked_at=5)
    person.store(
        *every(), Pause(id="agent:claude", active=True, reason="expired login", question=question, created_at=1)
    )
    said = person("status", "--json").data
    assert set(said) == set("manager agents tasks unproven questions conflicts pauses holds".split())
    assert set(said["tasks"]) == {status.value for status in Status}
    assert said["manager"] == {"running": False, "engines": []}
    assert [one["selector"] for one in said["pauses"]] == ["agent:claude"]
    assert {one["id"] for one in said["questions"]} >= {"q_agent:claude"}
    words = person("status").out
    assert "paused: agent:claude: expired login" in words
    assert "3 open questions" in words


def test_an_engine_is_as_busy_as_the_tasks_in_its_hands_whatever_it_said_last(person: Person) -> None:
    now = time.time_ns() // 1_000_000
    waiting = replace(samples.pending(), id="bbbbbbbb")
    person.store(samples.started(), waiting, Engine(id="e_1", host="other", pid=1, version="0", slots=1, beat_at=now))
    engines = person("status", "--json").data["manager"]["engines"]
    assert [one["busy"] for one in engines] == [1]
    assert person("why", waiting.id, "--json").data["reasons"][0]["rule"] == "slots"
    assert person("why").out == "  why: 1 runner is at work, 1 task is ready\n"


def test_work_whose_engine_has_ended_is_no_empty_backlog_and_says_who_goes_on_with_it(person: Person) -> None:
    person.store(samples.started())
    assert "its engine has ended" in person("why", "aaaaaaaa").out
    assert "codefleet start adopts it" in person("why", "aaaaaaaa").out
    assert "empty" not in person("why").out


def test_a_fleet_that_only_waits_to_be_judged_says_so(person: Person) -> None:
    person.store(samples.verified())
    [_, reason] = person("why", "--json").data["reasons"]
    assert (reason["text"], reason["lifts"]) == ("no task is ready (1 to be judged)", "codefleet review")


# ------------------------------------------------------------------------------------------------------- lists


def test_tasks_shows_what_is_in_progress_and_counts_the_rest(person: Person) -> None:
    person.store(*every())
    shown = {task["status"] for task in person("tasks", "--json", "-q").data}
    assert shown == {"assigned", "in_progress", "waiting", "verifying", "verified", "landing"}
    assert "1 blocked, 1 pending, 1 completed, 1 failed, 1 cancelled" in person("tasks").err


def test_tasks_can_be_asked_for_by_state_and_the_first_columns_are_fixed(person: Person) -> None:
    person.store(*every())
    said = person("list-tasks", "--status", "pending,failed")
    assert said.out.splitlines()[0].split()[:4] == ["ID", "STATUS", "PRI", "TITLE"]
    assert {line.split()[1] for line in said.out.splitlines()[1:]} == {"pending", "failed"}


def test_a_list_without_tasks_says_so_and_is_no_failure(person: Person) -> None:
    said = person("list-tasks", "--status", "pending")
    assert (said.code, said.out) == (0, "")
    assert "there are no pending tasks" in said.err


def test_a_limit_is_kept_and_what_is_left_is_said(person: Person) -> None:
    for number in range(3):
        person.added(f"Task {number}")
    said = person("tasks", "--all", "-n", "2")
    assert len(said.out.splitlines()) == 3
    assert "there are more" in said.err
    assert "also" not in said.err


def test_ready_prints_id_title_and_folder_a_line(person: Person) -> None:
    first = person.added("First")
    person.added("Second", "--depends-on", first)
    assert person("ready").out == f"{first}\tFirst\t{person.cwd}\n"


# ----------------------------------------------------------------------------------------------------- targets


def test_a_task_is_found_by_id_beginning_branch_question_and_run(person: Person) -> None:
    task = replace(samples.waiting(live=False), id="abcd1234", branch_name="scripted/fix-it/abcd1234")
    assert task.run is not None
    assert task.question is not None
    task = replace(
        task,
        run=replace(task.run, id="abcd1234.1", task_id="abcd1234"),
        question=replace(task.question, id="q_abcd1234.1"),
    )
    person.store(task, replace(samples.pending(), id="abcx0000"))
    for name in ("abcd1234", "abcd", "scripted/fix-it/abcd1234", "scripted/fix", "q_abcd1234", "q_abcd1234.1"):
        assert person("show", name, "--json").data["id"] == "abcd1234", name
    for name in ("abcd1234.1", "abcd.1"):
        shown = person("show", name, "--json").data
        assert (shown["what"], shown["task_id"]) == ("run", "abcd1234")
    assert person("show", "abcd.2").code == 3
    assert person("show", ".1").code == 3


def test_an_ambiguous_name_is_refused_with_the_list_and_an_unknown_one_is_not_there(person: Person) -> None:
    person.store(replace(samples.pending(), id="abcd1234"), replace(samples.pending(), id="abcx0000"))
    said = person("show", "abc")
    assert said.code == 2
    assert "abcd1234, abcx0000" in said.err
    assert person("show", "zzz").code == 3
    assert person("show", "").code == 3
    assert person("cancel", "abcd", "zzz").code == 3
    assert {task["status"] for task in person("tasks", "--all", "--json").data} == {"pending"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cancel"], "completed is final"),
        (["retry"], "add a follow-up task"),
        (["edit", "--title", "x"], "cannot have its text edited"),
        (["answer", "yes"], "and asks nothing"),
        (["review", "--reject", "no"], "only work that is verified"),
    ],
)
def test_what_the_state_forbids_is_refused_in_words(person: Person, args: list[str], words: str) -> None:
    done = replace(samples.every()[Status.COMPLETED][0], id="dddddddd")
    person.store(done)
    said = person(args[0], "dddddddd", *args[1:])
    assert said.code == 2
    assert words in said.err
    assert "dddddddd is completed" in said.err


# --------------------------------------------------------------------------------------------- answer and review


def test_open_questions_are_listed_with_how_they_are_answered_and_an_answer_goes_on(person: Person) -> None:
    task = replace(samples.waiting(live=False), id="abcd1234")
    person.store(task)
    listed = person("answer")
    assert "Left or right?" in listed.out
    assert "codefleet answer abcd1234 TEXT" in listed.out
    assert person("answer", "abcd1234").code == 2
    after = person("answer", "abcd1234", "-", "--json", stdin="left\n").data
    assert (after["status"], after["question"]["answer"], after["question"]["answered_by"]) == (
        "pending",
        "left\n",
        "person",
    )
    assert person("answer", "abcd1234", "right").code == 2
    assert person("answer").out == "no open questions\n"


def test_an_empty_answer_is_refused(person: Person) -> None:
    person.store(samples.waiting(live=True))
    assert person("answer", "aaaaaaaa", "  ").code == 2


def test_any_answer_to_a_pause_lifts_it(person: Person) -> None:
    question = Question(id="q_agent:claude", text="log in again", asked_at=5)
    person.store(Pause(id="agent:claude", active=True, reason="expired login", question=question))
    assert person("answer", "q_agent:claude", "done").out == "agent:claude goes on\n"
    assert person("status", "--json").data["pauses"] == []
    assert person("answer", "q_agent:claude", "done").code == 2


def test_people_pause_and_resume_the_fleet_an_agent_type_a_project_and_a_task(person: Person) -> None:
    key = person.added("First", "--agent", "scripted")
    project = person("show", key, "--json").data["project"]
    wanted = {"fleet": "fleet", "scripted": "agent:scripted", "project": f"project:{project}", key: f"task:{key}"}
    for name, selector in wanted.items():
        assert person("pause", name, "--reason", "lunch", "--json").data[0]["selector"] == selector
        assert f"codefleet resume {selector}" in person("why", key).out, name
        person("resume", name)
        assert "lunch" not in person("why", key).out
    assert person("pause", "account:work").code == 0
    assert "account:work" not in person("why", key).out
    said = person("resume")
    assert said.out == "fleet was not paused\n"
    assert "still paused: account:work: a person paused it (codefleet resume account:work)" in said.err
    assert person("resume", "account:work").out == "account:work goes on\n"


def test_approved_work_is_accepted_and_its_dependents_may_start(person: Person) -> None:
    done = replace(samples.verified(), id="dddddddd")
    person.store(done)
    waiting = person.added("Second", "--depends-on", "dddddddd")
    assert "dddddddd" in person("review").out
    assert person("review", "dddddddd", "--approve", "--reject", "x").code == 2
    after = person("review", "dddddddd", "--approve", "--json").data
    assert (after["status"], after["evidence"]["reviewer"]) == ("completed", "person")
    assert person("show", waiting, "--json").data["status"] == "pending"
    assert person("review").err == "nothing awaits review\n"


def test_rejected_work_goes_back_with_the_comments(person: Person) -> None:
    person.store(replace(samples.verified(), id="dddddddd"))
    said = person("review", "dddddddd", "--reject", "too long", "--comment", "a.py:3", "split this")
    assert said.code == 0
    task = person("show", "dddddddd", "--json").data
    assert (task["status"], task["rounds"], task["evidence"]) == ("pending", 0, None)


def test_what_is_refused_for_one_is_done_for_the_others(person: Person) -> None:
    key = person.added("First")
    person.store(replace(samples.every()[Status.COMPLETED][0], id="dddddddd"))
    said = person("cancel", "dddddddd", key, "--json")
    assert said.code == 2
    assert [task["id"] for task in said.data] == [key]
    assert "dddddddd is completed" in said.err


def test_two_homes_in_the_environment_are_said(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_HOME", "/elsewhere")
    assert "FLEET_HOME says otherwise" in person("tasks").err


def test_cancel_leaves_alone_what_has_begun_when_asked(person: Person) -> None:
    key = person.added("First")
    person.store(replace(samples.started(), id="abcd1234"))
    person("cancel", key, "abcd1234", "--not-started")
    states = {task["id"]: task["status"] for task in person("tasks", "--all", "--json").data}
    assert states == {key: "cancelled", "abcd1234": "in_progress"}


# ------------------------------------------------------------------------------------------------------ reading


def test_events_tell_every_step_and_can_be_chosen_and_gone_on_from(person: Person) -> None:
    key, other = person.added("First"), person.added("Second")
    person("cancel", key)
    lines = [json.loads(line) for line in person("events", "--json").out.splitlines()]
    assert [line["kind"] for line in lines] == ["project_added", "task_created", "task_created", "task_cancelled"]
    assert set(lines[0]) >= {"schema_version", "position", "kind", "task_id", "run", "ts", "data"}
    after = person("events", "--json", "--after", lines[1]["position"]).out.splitlines()
    assert [json.loads(line)["task_id"] for line in after] == [other, key]
    assert len(person("events", "--target", key).out.splitlines()) == 2
    assert len(person("events", "--type", "task_cancelled").out.splitlines()) == 1
    said = person("events", "--type", "task_canceled")
    assert (said.code, "task_cancelled" in said.err) == (2, True)
    assert person("events", "--after", "nonsense").code == 2


def test_the_log_of_a_task_is_read_from_the_store_and_what_is_not_there_is_said(person: Person) -> None:
    key = person.added("First")
    [line] = person("task", key, "log").out.splitlines()
    assert json.loads(line)["event"] == "task_created"
    for what in ("plan", "knowledge", "qa", "result", "diff"):
        said = person("task", key, what)
        assert (said.code, said.out) == (1, ""), what
        assert "hint: " in said.err
    assert person("task", key, "nothing").code == 2
    assert person("task", "zzzz", "log").code == 3
    assert person("logs", key).code == 0


def test_an_event_tells_until_when_as_a_time(person: Person) -> None:
    hold = Hold(kind="time", text="later", until=1_700_000_000_000)
    task, at = samples.assigned(), samples.BY
    change = runs.decline(task, task.epoch, hold, at)
    person.store(task)

    async def decline(store: Store) -> None:
        [held] = await store.get(Task, [task.id])
        await store.commit(held, change.task, change.facts)

    person.with_store(decline)
    told = {one["kind"]: one["data"] for one in map(json.loads, person("events", "--json").out.splitlines())}
    assert told["task_held"]["until"] == "2023-11-14T22:13:20.000Z"
    assert told["task_declined"]["hold"]["until"] == "2023-11-14T22:13:20.000Z"
    assert "until=22:13:20" in person("events", "--type", "task_held").out
    assert '"until": "2023-11-14T22:13:20.000Z"' in person("task", task.id, "log").out


def test_logs_name_the_tool_that_failed_and_say_how_gates_ended(person: Person) -> None:
    person.store(samples.started())
    said: list[tuple[str, dict[str, Any]]] = [
        ("tool_call", {"id": "t1", "name": "Bash", "input": "make", "status": "started"}),
        ("tool_call", {"id": "t1", "status": "error"}),
        ("tool_call", {"id": "t1", "status": "ok"}),
        ("tool_call", {"id": "before", "status": "error"}),
        ("setup_output", {"command": "npm ci", "exit_code": 0, "text": "much\n"}),
        ("gate_output", {"command": "pytest -q", "exit_code": 1, "text": "1 failed\nsad\n"}),
        ("gate_output", {"command": "lint", "exit_code": None, "text": ""}),
    ]
    items = [Activity(run="aaaaaaaa.1", n=n, at=5, kind=kind, data=data) for n, (kind, data) in enumerate(said)]
    person.with_store(lambda store: store.log(items))
    assert [line[10:] for line in person("logs", "aaaaaaaa").out.splitlines()] == [
        "> Bash make",
        "> Bash (error)",
        "> a tool (error)",
        "[setup] npm ci: green",
        "[gate] pytest -q: exit 1",
        "1 failed",
        "sad",
        "[gate] lint: exit unknown",
    ]
    assert len(person("logs", "aaaaaaaa", "--json").data) == len(said)


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_a_number_of_lines_must_be_positive(person: Person, number: str) -> None:
    assert person("log", number).code == 2
    assert person("logs", "-n", number).code == 2


# ---------------------------------------------------------------------------------------------------- conventions


def test_global_options_stand_before_or_behind_the_command(person: Person) -> None:
    person.added("First")
    assert person("--json", "tasks", "--all").data == person("tasks", "--all", "--json").data
    other = str(person.home.path.parent / "other")
    assert person("--home", other, "tasks", "--all", "--json").data == []
    assert person("tasks", "--all", "--json", "--home", other).data == []


def test_what_is_only_read_makes_no_home(person: Person) -> None:
    for args in (["status"], ["tasks"], ["why"], ["events"], ["answer"], ["review"], ["logs"], ["config"], ["doctor"]):
        person(*args)
    assert not person.home.path.exists()
    assert person("status").err.count("`codefleet init` makes one") == 1


def test_the_home_belongs_to_its_owner_alone(person: Person) -> None:
    person.added("First")
    assert person.home.path.stat().st_mode & 0o777 == 0o700
    assert person.home.id_file.read_text().strip()


def test_a_home_that_can_not_be_one_is_said(person: Person) -> None:
    file = person.home.path.parent / "file"
    file.write_text("")
    said = person("--home", str(file), "add", "x")
    assert said.code == 1
    assert "can not be a home" in said.err


def test_a_damaged_store_is_refused_with_what_to_do_and_left_as_it_is(person: Person) -> None:
    person.home.path.mkdir(mode=0o700)
    person.home.database.write_bytes(b"no database at all" * 100)
    for args in (["status"], ["add", "x"]):
        said = person(*args)
        assert said.code == 4
        assert "hint: " in said.err
    assert person.home.database.read_bytes() == b"no database at all" * 100


def test_an_unknown_command_names_its_neighbours(person: Person) -> None:
    said = person("taks")
    assert said.code == 2
    assert "Did you mean tasks" in said.err


def test_the_version_is_told_three_ways(person: Person) -> None:
    assert person("version").out == f"codefleet {__version__}\n"
    assert person("--version").out == f"codefleet {__version__}\n"
    assert person("version", "--json").data == {"version": __version__}


def test_the_bare_command_shows_help_and_is_wrong_usage(person: Person) -> None:
    said = person()
    assert (said.code, said.out) == (2, "")
    assert "Commands" in said.err or "Give work" in said.err


def test_a_reader_that_has_enough_is_no_failure(person: Person) -> None:
    person.store(*(replace(samples.pending(), id=f"{number:08}", title="x" * 300) for number in range(400)))
    for args in ("tasks --all -n 1000", "events --after 1"):
        person.added("One more " + "x" * 280)
        script = f"{sys.executable} -m codefleet {args} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=person.cwd, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_what_the_system_denies_is_no_defect_of_ours(person: Person) -> None:
    script = f"{sys.executable} -m codefleet status > /dev/full"
    done = subprocess.run(
        ["bash", "-c", script], cwd=person.cwd, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "defect" not in done.stderr


def test_what_others_wrote_can_not_steer_the_terminal(person: Person) -> None:
    person.store(replace(samples.pending(), title="red \x1b[31malert\x07 \u202egnp.exe"))
    for args in (["tasks", "--all"], ["show", "aaaaaaaa"], ["why", "aaaaaaaa"], ["cancel", "aaaaaaaa"]):
        out = person(*args).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\u202e" not in out


def test_a_defect_of_ours_is_one_line_unless_somebody_debugs(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codefleet.app.glance.status", lambda *_: 1 / 0)
    said = person("status")
    assert said.code == 1
    assert said.err.splitlines()[0] == "error: ZeroDivisionError: division by zero"
    assert "Traceback" not in said.err
    assert "Traceback" in person("status", "--debug").err


# --------------------------------------------------------------------------------------------------------- start


HEAVY = (
    "anyio",
    "apsw",
    "msgspec",
    "rich",
    "asyncio",
    "tomlkit",
    "codefleet.core.model",
    "codefleet.stores",
    "codefleet.drivers",
)


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        (["--help"], ()),
        (["add", "--help"], ()),
        (["--version"], ()),
        (["agent", "report", "--help"], ()),
        (["status", "--json"], ("apsw",)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_help_and_status_load_no_store_and_no_engine(person: Person, args: list[str], allowed: tuple[str, ...]) -> None:
    person.added("First")
    program = (
        "import sys\nfrom codefleet.cli.running import run\n"
        f"code = run({args!r})\nprint([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = [name for name in json.loads(done.stderr.strip().replace("'", '"')) if name not in allowed]
    assert loaded == []


def _held(key: str, kind: str) -> Task:
    on, until = ("p1" if kind in {"trust", "setup"} else None), (1 << 42 if kind in {"limit", "time"} else None)
    return replace(samples.pending(), id=key, hold=Hold(kind=kind, text=f"for {kind}", on=on, until=until))


def test_status_at_a_glance_is_the_status_of_the_store(person: Person) -> None:
    question = Question(id="q_fleet", text="?", asked_at=5)
    person.store(
        *every(),
        Agent(id="runner-1", type="scripted", engine="e_1", host="h"),
        Pause(id="fleet", active=True, reason="x", question=question),
        Pause(id="agent:x", active=True, reason="x", until=7),
        Pause(id="agent:y", reason="x"),
        *(_held(f"held000{n}", kind) for n, kind in enumerate(["trust", "setup", "limit", "person", "time", "trust"])),
    )
    quick = person("status", "--json").data
    (person.home.path / "runtime.toml").write_text("stale_after = 120\n")
    assert person("status", "--json").data == quick
    assert quick["questions"]
    assert {one["kind"]: one["tasks"] for one in quick["holds"]} == {"trust": 2, "setup": 1, "limit": 1}
    assert "2 tasks held: for trust" in person("status").out


@pytest.mark.parametrize(
    ("query", "given", "index"),
    [
        (glance.TASKS, ("[]", 9), "task USING INDEX task_list (project=? AND status=?)"),
        (glance.HELD, (9,), "task USING INDEX task_list (project=? AND status=?)"),
        (glance.TITLES, ("a", 9), "task USING INDEX sqlite_autoindex_task_1 (id>? AND id<?)"),
    ],
)
def test_a_glance_reads_no_whole_backlog(person: Person, query: str, given: tuple[object, ...], index: str) -> None:
    person.store()
    with closing(apsw.Connection(str(person.home.database))) as db:
        plan = [str(row[-1]) for row in db.execute(f"EXPLAIN QUERY PLAN {query}", given)]
    assert index in "\n".join(plan)
    assert not [step for step in plan if step.startswith("SCAN task")]
