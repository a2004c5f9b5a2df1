"""The plugin in sessions of pytest of its own, with agents that make real spans."""
import pathlib
import re

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

AGENT = """
import sys
sys.path.insert(0, {folder!r})
from opentelemetry.sdk.trace import TracerProvider
from scripted_agent import ToolCall, run_agent

# Made when it is imported, before any fixture could set a variable, and without an exporter.
provider = TracerProvider()
tracer = provider.get_tracer("agent")

def close_issue(request="Close issue 7.", in_order=True):
    calls = [ToolCall("list_issues", {{"state": "open"}}, "issue 7: login fails"), ToolCall("close_issue", {{"issue": 7}}, "closed issue 7")]
    return run_agent(tracer, request, calls if in_order else calls[::-1], "Issue 7 is closed.")

def claim_success():
    return run_agent(tracer, "Close issue 7.", [ToolCall("close_issue", {{"issue": 7}}, "Error: 403 forbidden", is_error=True)], "Done: issue 7 is closed.")
"""


@pytest.fixture
def session(pytester):
    """A session in a process of its own, so that its providers and its server are its own."""
    pytester.makepyfile(agent=AGENT.format(folder=str(pathlib.Path(__file__).resolve().parent)))
    pytester.makeini("[pytest]\naddopts = -p no:randomly\n")

    def run(source, *options):
        pytester.makepyfile(test_agent=source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run


def test_the_runs_of_a_test(session):
    session("""
        from agent import close_issue, claim_success

        def test_order(gradus):
            close_issue()
            run = gradus.run
            assert run.query == "Close issue 7." and run.answer == "Issue 7 is closed."
            assert run.called("list_issues").before("close_issue")
            assert run.steps[1].tool == "close_issue" and run.steps[1].arguments == {"issue": 7}
            assert run.called("close_issue", issue=7).once()
            assert run.no_errors() and run.no_ignored_errors() and run.arguments_grounded() and run.valid_calls()
            assert run.answer_contains("closed")
            assert run.judge("call_validity").none_wrong()

        def test_each_test_has_its_own(gradus):
            assert gradus.runs == []
            close_issue("Close issue 8.")
            close_issue("Close issue 9.")
            assert [run.query for run in gradus.runs] == ["Close issue 8.", "Close issue 9."]

        def test_errors_that_are_ignored(gradus):
            claim_success()
            assert not gradus.run.no_ignored_errors()

        def test_without_the_fixture():
            close_issue()

        def test_after_one_without_the_fixture(gradus):
            assert gradus.runs == []
    """).assert_outcomes(passed=5)


def test_a_failure_shows_the_transcript_with_the_step(session):
    result = session("""
        from agent import close_issue

        def test_order(gradus):
            close_issue(in_order=False)
            assert gradus.run.called("list_issues").before("close_issue")

        def test_never(gradus):
            close_issue()
            assert not gradus.run.called("close_issue")

        def test_plain(gradus):
            close_issue()
            assert gradus.run.steps[0].tool == "search"

        def test_raising(gradus):
            close_issue()
            raise RuntimeError("of its own")
    """)
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    order, never, plain, raising = re.split(r"_{5,} test_\w+ _{5,}", text)[1:5]
    assert "called('list_issues').before('close_issue') does not hold: close_issue (step 1) came before list_issues (step 2)" in order
    assert re.search(r'^>>   1\. close_issue \{"issue": 7\}$', order, re.M)
    assert "called('close_issue') holds: close_issue was called in step 2" in never
    assert re.search(r"^>>   2\. close_issue", never, re.M)
    for section in (plain, raising):
        assert re.search(r"^     1\. list_issues", section, re.M) and ">>" not in section


def test_nothing_received_says_what_to_do(session):
    result = session("""
        import agent

        def test_silent(gradus):
            gradus.run

        def test_spans_without_an_agent(gradus):
            with agent.tracer.start_as_current_span("work"):
                pass
            gradus.run

        def test_two(gradus):
            agent.close_issue("Close issue 1.")
            agent.close_issue("Close issue 2.")
            gradus.run
    """)
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    assert "no run was received at http://127.0.0.1:" in text and "TracerProvider of this process ended no span" in text and "OTEL_EXPORTER_OTLP_ENDPOINT" in text and "force_flush()" in text
    assert "1 spans in 1 traces arrived, but none of them is a model call" in text
    assert "2 runs were received in this test" in text and "'Close issue 2.'" in text


def test_the_environment_is_set_and_put_back(session, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    session("""
        import os

        def test_set(gradus):
            assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == gradus.endpoint == os.environ["PHOENIX_COLLECTOR_ENDPOINT"]
            assert os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
            assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" not in os.environ
            assert gradus.environment().items() <= os.environ.items()

        def test_put_back():
            assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:9"
            assert os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "http://127.0.0.1:9/v1/traces"
            assert "PHOENIX_COLLECTOR_ENDPOINT" not in os.environ
    """).assert_outcomes(passed=2)


def test_an_agent_in_another_process(session):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    session("""
        import subprocess, sys

        PROGRAM = '''
        import agent
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        agent.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        agent.close_issue("Close issue 3.")
        agent.provider.shutdown()
        '''

        def test_program(gradus):
            import textwrap
            subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=True)
            assert gradus.run.query == "Close issue 3."
            assert len(gradus.wait_for_runs(1)) == 1

        def test_exporter_of_this_process(gradus):
            # The spans arrive twice, from our processor and from the exporter, and count once.
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            import agent
            from scripted_agent import run_agent
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
            run_agent(provider.get_tracer("test"), "Hello?", [], "Hello.")
            assert [run.answer for run in gradus.runs] == ["Hello."]
    """).assert_outcomes(passed=2)


def test_a_straggler_of_an_earlier_test_is_not_of_this_one(session):
    session("""
        import threading
        import agent
        from scripted_agent import run_agent

        go_on, ended = threading.Event(), threading.Event()

        def slow():
            with agent.tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT", "input.value": "Slow?"}):
                go_on.wait(20)
                run_agent(agent.tracer, "Slow?", [], "Slow.")
            ended.set()

        def test_begins(gradus):
            threading.Thread(target=slow).start()
            agent.close_issue()
            assert len(gradus.runs) == 1

        def test_ends(gradus):
            go_on.set()
            assert ended.wait(20)
            agent.close_issue("Close issue 5.")
            assert [run.query for run in gradus.runs] == ["Close issue 5."]
    """).assert_outcomes(passed=2)


def test_calls_of_one_reply(session):
    session("""
        import agent
        from scripted_agent import ToolCall, run_agent

        def test_together(gradus):
            run_agent(agent.tracer, "Both.", [[ToolCall("a", {}, "1"), ToolCall("b", {}, "2")]], "Done.")
            check = gradus.run.called("a").before("b")
            assert not check and "same reply" in check.reason
    """).assert_outcomes(passed=1)


def test_trials_stop_when_the_count_is_certain(session):
    result = session("""
        import pytest, agent
        count = {}

        def trial(name):
            count[name] = count.get(name, 0) + 1
            return count[name]

        @pytest.mark.gradus(trials=5, at_least=0.8)
        def test_passes(gradus):
            number = trial("passes")
            agent.close_issue()
            # Each trial has a recording of its own.
            assert len(gradus.runs) == 1
            assert number != 2

        @pytest.mark.gradus(trials=5, at_least=0.8)
        def test_fails(gradus):
            assert trial("fails") == 2, "it mostly fails"

        @pytest.mark.gradus(trials=4, at_least=2)
        def test_number():
            trial("number")

        @pytest.mark.gradus(trials=3)
        def test_skips():
            trial("skips")
            pytest.skip("not today")

        def test_counts():
            # 4 of 5 pass after the fifth; two failures decide the other way after the third.
            assert count == {"passes": 5, "fails": 3, "number": 2, "skips": 1}
    """, "-rA")
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    text = result.stdout.str()
    assert "PASSED test_agent.py::test_passes: 4 of 5 trials passed; 4 of 5 have to" in text
    assert "FAILED test_agent.py::test_fails: 1 of 3 trials passed; 4 of 5 have to" in text
    assert "PASSED test_agent.py::test_number: 2 of 2 trials passed; 2 of 4 have to" in text
    assert text.count("it mostly fails") >= 2 and "trial 1:" in text and "trial 3:" in text


def test_trials_keep_wider_fixtures(session):
    session("""
        import pytest
        made = []

        @pytest.fixture(scope="module")
        def wide():
            made.append("wide")
            yield
            made.append("wide closed")

        @pytest.fixture
        def narrow(wide):
            made.append("narrow")
            yield
            made.append("narrow closed")

        @pytest.mark.gradus(trials=2, at_least=1.0)
        def test_twice(narrow):
            pass

        def test_made():
            assert made == ["wide", "narrow", "narrow closed", "narrow", "narrow closed"]
    """).assert_outcomes(passed=2)


@pytest.mark.parametrize("words, complaint", [("trials=0", "1 or more"), ("trials=3, at_least=4", "between 1 and trials=3"), ("at_least=1.5", "at most 1"), ("runs=3", "runs"), ("at_least='all'", "a share")])
def test_a_wrong_marker_fails_its_test_only(session, words, complaint):
    result = session(f"""
        import pytest

        @pytest.mark.gradus({words})
        def test_it(gradus):
            pass

        def test_other():
            pass
    """)
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert complaint in result.stdout.str() and "pytest_plugin.py" not in result.stdout.str()


def test_a_disabled_sdk_is_named(session, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    result = session("""
        import agent

        def test_it(gradus):
            agent.close_issue()
            assert gradus.run.answered()
    """)
    result.assert_outcomes(failed=1)
    assert "OTEL_SDK_DISABLED=true was set" in result.stdout.str()


def test_a_test_reads_its_own_traces_only(session):
    """Whatever earlier tests have sent: what is read in a long session grows with its tests, not with their square."""
    session("""
        import agent, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(gradus, number):
            client, listed = gradus.client, []
            pages = client._pages
            client._pages = lambda *words: listed.append(list(pages(*words))) or iter(listed[-1])
            agent.close_issue()
            assert gradus.run.answered()
            client._pages = pages
            # Two lists: traces since the test began, and recordings that are older than the server.
            assert sum(len(page) for page in listed) == 1
    """).assert_outcomes(passed=6)


def test_a_recording_for_several_tests(session):
    result = session("""
        import pytest, agent

        @pytest.fixture(scope="module")
        def run(gradus_recorder):
            with gradus_recorder() as recorder:
                agent.close_issue()
                return recorder.run

        def test_first(run):
            assert run.called("close_issue")

        def test_with_its_own(run, gradus):
            assert gradus.runs == []
            agent.claim_success()
            assert gradus.run.answer == "Done: issue 7 is closed." and run.answer == "Issue 7 is closed."

        def test_fails(run):
            assert run.called("delete_issue")
    """)
    result.assert_outcomes(passed=2, failed=1)
    assert "called('delete_issue') does not hold: delete_issue was never called; called were: close_issue, list_issues" in result.stdout.str()


def test_a_server_that_was_ended_is_started_anew(session):
    session("""
        import os, signal, agent

        def test_ends_it(gradus):
            agent.close_issue()
            assert gradus.run
            process = gradus._session.server._process
            process.send_signal(signal.SIGTERM)
            process.wait()

        def test_goes_on(gradus):
            agent.close_issue()
            assert gradus.run.answered()
    """).assert_outcomes(passed=2, errors=1)


def test_counts_of_trials_are_in_junit(session):
    session("""
        import pytest

        @pytest.mark.gradus(trials=2, at_least=1)
        def test_it():
            pass
    """, "--junitxml=out.xml").assert_outcomes(passed=1)
    written = pathlib.Path("out.xml").read_text()
    assert written.count('<property name="gradus_trials" value="1 of 1 trials passed; 1 of 2 have to"') == 1
    assert written.count("<testcase") == 1


def test_workers_of_xdist_have_their_own_servers(session):
    pytest.importorskip("xdist")
    result = session("""
        import os, pathlib, pytest, agent

        @pytest.mark.parametrize("number", range(12))
        def test_many(gradus, number):
            agent.close_issue(f"Close issue {number}.")
            assert gradus.run.query == f"Close issue {number}."
            pathlib.Path(f"server-{os.environ['PYTEST_XDIST_WORKER']}-{gradus.endpoint.rsplit(':')[-1]}").touch()

        @pytest.mark.gradus(trials=3, at_least=2)
        def test_trials(gradus):
            agent.close_issue()
            assert gradus.run.answered()
    """, "-n", "2", "-rA")
    result.assert_outcomes(passed=13)
    assert "2 of 2 trials passed; 2 of 3 have to" in result.stdout.str()
    servers = [name.name.split("-") for name in pathlib.Path.cwd().glob("server-*")]
    assert len(servers) == 2 and len({server[2] for server in servers}) == 2, servers


def test_a_missing_program_is_an_error_of_the_setup(session, monkeypatch):
    monkeypatch.setenv("GRADUS_BIN", "/nonexistent/gradus")
    result = session("""
        def test_it(gradus):
            pass

        def test_other():
            pass
    """)
    result.assert_outcomes(errors=1, passed=1)
    assert "GRADUS_BIN: /nonexistent/gradus: it is not a program" in result.stdout.str()
