//! `gradus health`, as a container asks it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::lab::Lab;
use crate::place::Ran;

#[test]
fn health_is_asked_in_one_line_and_two_exit_codes() {
    let lab = Lab::new();
    let server = lab.serve();
    let url = format!("http://{}", server.http);
    let ran = lab.run(&["health", &url]).exits_with(0);
    assert_eq!(ran.out, format!("ok: {url}: gradus {} accepts spans\n", env!("CARGO_PKG_VERSION")));
    lab.run(&["health", &server.http.to_string(), "--live"]).exits_with(0);
    // By the environment, and by the settings.
    let mut command = lab.command(&["health"]);
    Ran::from_output(command.env("GRADUS_URL", &url).output().unwrap()).exits_with(0);
    lab.configure(&format!("http = \"0.0.0.0:{}\"", server.http.port()), "");
    let ran = lab.run(&["health"]).exits_with(0);
    assert!(ran.out.starts_with(&format!("ok: http://127.0.0.1:{}: ", server.http.port())), "{}", ran.out);
    // As in a container: no home, no path, no certificates of authorities, nothing but the program.
    let mut bare = std::process::Command::new(env!("CARGO_BIN_EXE_gradus"));
    bare.args(["health", url.as_str()]).env_clear().current_dir("/");
    bare.env("SSL_CERT_FILE", lab.write("no-certificates.pem", "")).env("SSL_CERT_DIR", "/nonexistent");
    Ran::from_output(bare.output().unwrap()).exits_with(0);
    server.stop();
    let ran = lab.run(&["health", &url]).exits_with(1);
    assert!(ran.out.is_empty() && ran.err.lines().count() == 1, "{}", ran.err);
    assert!(ran.err.starts_with(&format!("gradus: not healthy: {url}: ")), "{}", ran.err);
}

#[test]
fn whatever_is_no_healthy_server_is_exit_code_1() {
    let lab = Lab::new();
    for url in ["ftp://x", "http://", "http://127.0.0.1:1/?a=b"] {
        let ran = lab.run(&["health", url]).exits_with(1);
        assert!(ran.err.contains("no address of a server"), "{}", ran.err);
    }
    // Another server that is healthy, too.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        for response in
            ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"]
        {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 2048];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    let ran = lab.run(&["health", &url]).exits_with(1);
    assert!(ran.err.contains("another server than gradus answers"), "{}", ran.err);
    let ran = lab.run(&["health", &url]).exits_with(1);
    assert!(ran.err.contains("HTTP 503"), "{}", ran.err);
    answering.join().unwrap();
    // Settings that cannot be read.
    lab.write("gradus.toml", "[serve\n");
    let ran = lab.run(&["health"]).exits_with(1);
    assert!(ran.err.contains("gradus.toml, line 1"), "{}", ran.err);
}
