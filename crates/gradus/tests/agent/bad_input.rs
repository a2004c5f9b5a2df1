//! What an agent cannot begin with is said in one line.

use gradus_test_endpoint::Answer;

use crate::lab::{Lab, answer, model, model_with};
use crate::place::Ran;

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let lab = Lab::new("w1");
    let model = model(vec![answer("Hello.")]);
    let page = model_with(Vec::new(), |_| {
        Some(Answer::ok("<html>Hello</html>".to_owned()).with_header("content-type", "text/html"))
    });
    let page = page.origin();
    lab.write("broken.json", "{\"messages\": 1}");
    lab.ask(&model, &["Hi", "--session", "s.json", "--react", "text"]).exits_with(0);
    for (arguments, wanted) in [
        (vec!["Hi", "--github-url", &page], "is not GitHub's API"),
        (vec!["Hi", "--github-url", "http://127.0.0.1:9"], "cannot reach GitHub at http://127.0.0.1:9"),
        (vec!["Hi", "--github-url", "github"], "is no address"),
        (vec!["Hi", "--tools", "repos,weather"], "--tools: there is no tool and no family of tools called \"weather\""),
        (vec!["Hi", "--session", "broken.json"], "broken.json, line 1: this is no session of gradus agent"),
        (vec!["Hi", "--session", "s.json", "--react", "native"], "--react: the session in the file has the other form"),
        (vec!["Hi", "--session", "no/such/folder/s.json"], "the session cannot be kept there"),
        (vec!["Hi", "--max-steps", "0"], "--max-steps and --max-calls: give at least 1"),
        (vec!["Hi", "--context-tokens", "100"], "--context-tokens 100: an agent needs at least 4000"),
        (vec!["Hi", "--api-key-env", "NO_SUCH_KEY"], "--api-key-env: NO_SUCH_KEY is not set"),
        (vec!["Hi", "--otlp", "somewhere"], "--otlp: write it as http://HOST:4318"),
        (vec!["Hi", "--mcp", "/no/such/server --stdio"], "--mcp: the MCP server \"/no/such/server\" cannot be started"),
        (vec!["Hi", "--trace-file", "no/such/folder/t.bin"], "--trace-file: no/such/folder/t.bin: No such file"),
        (vec!["Hi", "--mcp", &page, "--mcp-token-env", "NO_SUCH_TOKEN"], "--mcp-token-env: NO_SUCH_TOKEN is not set"),
        (
            vec!["Hi", "--mcp", "./server", "--mcp-token-env", "NO_SUCH_TOKEN"],
            "--mcp-token-env: there is no --mcp with an address for NO_SUCH_TOKEN",
        ),
        (vec!["  "], "the request is empty"),
        (vec![], "the request is empty"),
        (vec!["--session", "none.json"], "--session: there is no session in none.json to go on with"),
        (vec!["", "--session", "none.json"], "the request is empty"),
    ] {
        let ran = lab.ask(&model, &arguments).exits_with(2);
        assert!(ran.err.contains(wanted), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn without_a_model_it_says_how_to_name_one() {
    let lab = Lab::new("w0");
    let github = lab.github.url();
    let ran = lab.run(&["agent", "Hi", "--github-url", &github]).exits_with(2);
    assert!(ran.err.contains("there is no model to think: set OPENAI_API_KEY"), "{}", ran.err);
    let mut command =
        lab.command(&["agent", "Hi", "--github-url", &github, "--model", "claude-x", "--provider", "anthropic"]);
    let ran = Ran::from_output(command.output().unwrap()).exits_with(2);
    assert!(
        ran.err.contains("no key for anthropic: set ANTHROPIC_API_KEY") && !ran.err.contains("judge"),
        "{}",
        ran.err
    );
}

#[test]
fn a_token_that_is_not_taken_is_told_before_the_model_is_asked() {
    let lab = Lab::new("w0");
    let model = model(vec![answer("Hello.")]);
    let ran = Ran::from_output(lab.agent(&model, &["Hi"]).env("GITHUB_TOKEN", "wrong").output().unwrap()).exits_with(2);
    assert!(ran.err.contains("does not take the token"), "{}", ran.err);
    assert_eq!(model.received(), 0);
}
