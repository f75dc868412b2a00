"""The real Claude Code in a real fleet whose processes are killed at the worst moments: no work is lost or done twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from codefleet.testing.e2e import Engine, Terminal, alive, until
from codefleet.testing.model_server import Fault, ModelServer, Script, ask, edit, read, say, shell, turn, write

pytestmark = pytest.mark.agents

Kill = Callable[[Engine, int], None]
LATER = (turn(say("I wait.")), turn(edit("a", "a", "b")), turn(say("Done.")))
SILENCE = Fault(kind="stall", where="before")


def parent(pid: int) -> int:
    """Of an agent: its guard."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def silent(model: ModelServer, place: int) -> None:
    """Wait until the agent waits for a turn of the model, which will not come before it is released."""
    model.wait(lambda server: any(request.turn == place for request in server.requests))


def told_once(model: ModelServer, *headings: str) -> None:
    """One session, and each message of ours was taken once."""
    assert len({request.conversation for request in model.requests}) == 1
    told = model.requests[-1].said
    assert {heading: told.count(heading) for heading in headings} == dict.fromkeys(headings, 1)


def kill_engine(engine: Engine, agent: int) -> None:
    engine.kill()
    assert alive(agent)


def kill_engine_and_guard(engine: Engine, agent: int) -> None:
    guard = parent(agent)
    assert guard != engine.process.pid
    for pid in (engine.process.pid, guard):
        os.kill(pid, signal.SIGKILL)
    engine.wait()
    until(lambda: not alive(guard))
    assert alive(agent)


@pytest.mark.parametrize("kill", [kill_engine, kill_engine_and_guard])
@pytest.mark.parametrize("alone", [False, True], ids=["adopted in mid-turn", "adopted when it is done"])
def test_an_agent_outlives_its_engine_and_is_adopted(terminal: Terminal, kill: Kill, alone: bool) -> None:
    script = Script("long", (turn(write("a", "a")), turn(edit("a", "a", "b"), fault=SILENCE), turn(say("Done."))))
    with ModelServer([script]) as model:
        terminal.begin(model.url, gate="grep -q b a")
        key = terminal.added("Take long")
        with terminal.engine("--until-idle") as engine:
            silent(model, 1)
            agent = terminal.pid(f"{key}.1")
            kill(engine, agent)
        if alone:
            model.release()
            terminal.turns(f"{key}.1", 1)
            terminal.works()
        else:
            with terminal.engine("--until-idle") as engine:
                engine.until("agent_started")
                model.release()
                assert engine.wait() == 0
    assert not alive(agent)
    told_once(model, "# The task")
    task = terminal.task(key)
    assert (task["status"], task["proven"], task["attempts"], task["interruptions"]) == ("completed", True, 0, 0)
    [run] = task["runs"]
    assert (run["usage"]["input"], run["exit_code"]) == (3000, 0)
    numbers = [(one["data"]["n"], one["kind"]) for one in terminal.events("tool_call", "message", "file_changed")]
    assert len(numbers) == len(set(numbers)) == 7


def test_an_agent_that_was_just_started_is_adopted_and_told_once(terminal: Terminal) -> None:
    with ModelServer([Script("quick", (turn(write("a", "a")), turn(say("Done."))))]) as model:
        terminal.begin(model.url)
        key = terminal.added("Be quick")
        with terminal.engine("--until-idle") as engine:
            engine.until("task_started")
            engine.kill()
        terminal.works()
    told_once(model, "# The task")
    task = terminal.task(key)
    assert (task["status"], task["attempts"], len(task["runs"])) == ("verified", 0, 1)


def test_a_repair_goes_on_when_the_engine_that_asked_for_it_is_killed(terminal: Terminal) -> None:
    script = Script(
        "red",
        (
            turn(write("a", "a")),
            turn(say("Done.")),
            turn(edit("a", "a", "b"), fault=SILENCE),
            turn(say("Repaired.")),
        ),
    )
    with ModelServer([script]) as model:
        terminal.begin(model.url, gate="grep b a")
        key = terminal.added("Be red")
        with terminal.engine("--until-idle") as engine:
            silent(model, 2)
            engine.kill()
        with terminal.engine("--until-idle") as engine:
            engine.until("agent_started")
            model.release()
            assert engine.wait() == 0
    told_once(model, "# The task", "# A check failed")
    task = terminal.task(key)
    assert (task["status"], task["rounds"], task["attempts"], len(task["runs"])) == ("completed", 1, 0, 1)
    assert len(terminal.children(f"{key}.1")) == 1


def test_a_session_waits_for_its_proof_when_the_engine_is_killed_in_a_gate(terminal: Terminal) -> None:
    script = Script(
        "red", (turn(write("a", "a")), turn(say("Done.")), turn(edit("a", "a", "b")), turn(say("Repaired.")))
    )
    begun, hold = terminal.path / "begun", terminal.path / "hold"
    hold.touch()
    with ModelServer([script]) as model:
        gate = f"touch {begun}; while test -e {hold}; do sleep 0.02; done; grep b a"
        terminal.begin(model.url, gate=gate)
        key = terminal.added("Be red")
        with terminal.engine("--until-idle") as engine:
            until(begun.exists, lambda: engine.shown)
            engine.kill()
        hold.unlink()
        terminal.works()
    told_once(model, "# The task", "# A check failed")
    task = terminal.task(key)
    assert (task["status"], task["rounds"], task["attempts"], len(task["runs"])) == ("completed", 1, 0, 1)
    assert len(terminal.children(f"{key}.1")) == 1


def test_a_question_is_answered_though_no_engine_lives(terminal: Terminal) -> None:
    script = Script("ask", (turn(ask("Left or right?")), turn(write("a", "a")), turn(say("Done."))))
    with ModelServer([script]) as model:
        terminal.begin(model.url)
        key = terminal.added("Go somewhere")
        with terminal.engine("--until-idle") as engine:
            engine.until("task_waiting")
            engine.kill()
        terminal("answer", key, "straight on")
        terminal.works()
    told_once(model, "# The task")
    assert b"straight on" in (terminal.children(f"{key}.1")[0] / "out").read_bytes()
    task = terminal.task(key)
    assert (task["status"], task["attempts"], len(task["runs"])) == ("verified", 0, 1)


def test_a_question_that_no_engine_heard_in_time_is_parked_and_not_lost(terminal: Terminal) -> None:
    asking = shell("codefleet agent ask 'Left or right?' --wait 0.1")
    with ModelServer([Script("ask", (turn(write("a", "a")), turn(asking, fault=SILENCE), *LATER))]) as model:
        terminal.begin(model.url)
        key = terminal.added("Go somewhere")
        with terminal.engine("--until-idle") as engine:
            silent(model, 1)
            engine.kill()
        model.release()
        terminal.turns(f"{key}.1", 1)
        terminal.works()
        waiting = terminal.task(key)
        terminal("answer", key, "straight on")
        terminal.works()
    assert (waiting["status"], waiting["question"]["text"]) == ("waiting", "Left or right?")
    parked_and_answered(terminal, model, key)


def test_an_answer_that_came_when_nobody_waited_any_more_is_told_in_the_next_run(terminal: Terminal) -> None:
    asking = shell("codefleet agent ask 'Left or right?' --wait 2")
    with ModelServer([Script("ask", (turn(write("a", "a")), turn(asking), *LATER))]) as model:
        terminal.begin(model.url)
        key = terminal.added("Go somewhere")
        with terminal.engine("--until-idle") as engine:
            engine.until("task_waiting")
            engine.kill()
        terminal.turns(f"{key}.1", 1)
        terminal("answer", key, "straight on")
        terminal.works()
        terminal.works()
    parked_and_answered(terminal, model, key)


def parked_and_answered(terminal: Terminal, model: ModelServer, key: str) -> None:
    task = terminal.task(key)
    assert (task["status"], task["attempts"], task["interruptions"]) == ("verified", 0, 0)
    assert [run["outcome"] for run in task["runs"]] == ["question", "reported"]
    told_once(model, "# The task", "# You go on with task")
    assert "straight on" in model.requests[-1].said
    assert terminal.git("show", f"{task['branch_name']}:a") == "b"


def kill_agent(_engine: Engine, agent: int) -> None:
    os.kill(agent, signal.SIGKILL)


def kill_all_three(engine: Engine, agent: int) -> None:
    """As far as anybody can tell afterwards, the machine was switched off."""
    kill_engine_and_guard(engine, agent)
    os.kill(agent, signal.SIGKILL)
    until(lambda: not alive(agent))


@pytest.mark.parametrize("kill", [kill_agent, kill_all_three])
def test_the_work_of_a_killed_agent_is_kept_and_the_next_attempt_knows_of_it(terminal: Terminal, kill: Kill) -> None:
    first = Script("first", (turn(write("a", "a\n")), turn(say("never"), fault=SILENCE)))
    again = Script("again", (turn(read("a")), turn(edit("a", "a", "b")), turn(say("Done."))), key="attempt 2 of 3")
    with ModelServer([again, first]) as model:
        terminal.begin(model.url, gate="grep -q b a")
        key = terminal.added("Be killed")
        with terminal.engine("--until-idle") as engine:
            silent(model, 1)
            kill(engine, terminal.pid(f"{key}.1"))
            engine.wait()
        terminal.works()
    task = terminal.task(key)
    assert (task["status"], task["attempts"], task["interruptions"]) == ("completed", 1, 0)
    killed, done = task["runs"]
    known = killed["exit_known"]
    assert known or kill is kill_all_three
    assert (killed["outcome"], killed["exit_code"]) == ("own_error", -9 if known else None)
    assert [file["path"] for file in killed["files"]] == ["a"]
    assert done["outcome"] == "reported"
    assert ("signal 9" if known else "exit code is unknown") in model.of("again")[0].said
    assert terminal.git("show", f"{task['branch_name']}:a") == "b\n"


def test_an_agent_that_is_interrupted_goes_on_in_its_session(terminal: Terminal) -> None:
    script = Script("work", (turn(write("a", "a")), turn(edit("a", "a", "b"), fault=SILENCE), turn(say("Done."))))
    with ModelServer([script]) as model:
        terminal.begin(model.url, gate="grep -q b a")
        key = terminal.added("Be interrupted")
        with terminal.engine() as engine:
            silent(model, 1)
            agent = terminal.pid(f"{key}.1")
            engine.process.send_signal(signal.SIGINT)
            assert engine.wait() == 0
        between = terminal.task(key)
        assert not alive(agent)
        terminal.works()
    assert (between["status"], between["attempts"], between["interruptions"]) == ("pending", 0, 0)
    told_once(model, "# The task", "# You go on with task")
    task = terminal.task(key)
    assert (task["status"], task["attempts"], task["interruptions"]) == ("completed", 0, 0)
    assert [run["outcome"] for run in task["runs"]] == ["interrupted", "reported"]
    assert sum(run["usage"]["input"] for run in task["runs"]) == 3000
    assert task["actual_cost_usd"] == sum(run["cost_usd"] or 0 for run in task["runs"]) > 0
    assert terminal.git("show", f"{task['branch_name']}:a") == "b"
