//! Pages of other sites: whatever they have a browser send, nothing changes. All routes are walked, as the source and the
//! API's description list them.

use std::path::Path;

use serde_json::json;

use crate::lab::{Lab, Request, Server, TRACE_SERVICE, frame, grpc};
use crate::spans::{Visit, export, span};

/// A route that changes something.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WriteRoute {
    method: &'static str,
    path: String,
}

const WRITES: [(&str, &str); 4] = [("post", "POST"), ("put", "PUT"), ("patch", "PATCH"), ("delete", "DELETE")];

/// All `.route("PATH", ...)` of the server's source, and all operations of `/openapi.json`.
fn write_routes(server: &Server) -> Vec<WriteRoute> {
    let mut routes = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                text.split(".route(").skip(1).for_each(|rest| add_routes(rest, &mut routes));
                assert!(!text.contains(".nest(") && !text.contains("route_service("), "{}: walk these", path.display());
            }
        }
    }
    let description = server.json("/openapi.json");
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (name, method) in WRITES {
            if operations.get(name).is_some() {
                routes.push(WriteRoute { method, path: path.clone() });
            }
        }
    }
    routes.sort();
    routes.dedup();
    routes
}

/// `rest` begins behind `.route(`.
fn add_routes(rest: &str, routes: &mut Vec<WriteRoute>) {
    let (path, handlers) = rest.split_once(',').unwrap();
    // A path that is a constant is read only.
    let end = handlers.find(".route(").unwrap_or(handlers.len()).min(handlers.find(")\n").unwrap_or(handlers.len()));
    let handlers = &handlers[..end];
    for (name, method) in WRITES {
        let is_there = handlers.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
            && handlers.contains(&format!("{name}("));
        if is_there {
            let path = path.trim().strip_prefix('"').and_then(|path| path.strip_suffix('"'));
            let path = path.unwrap_or_else(|| panic!("write its path as a text: {rest:.80}")).to_owned();
            routes.push(WriteRoute { method, path });
        }
    }
}

fn concrete(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { "x" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

fn is_form(path: &str) -> bool {
    path.starts_with("/rubrics/x")
        || path == "/alerts"
        || path.starts_with("/alerts/")
        || ["/sign-in", "/sign-out", "/labels", "/labels/undo", "/server/retry", "/groups/x", "/start/demo"]
            .contains(&path)
}

#[test]
fn no_route_takes_a_write_from_another_site() {
    let lab = Lab::new();
    let server = lab.serve();
    let routes = write_routes(&server);
    let projects = server.json("/v1/projects");
    for known in
        ["/v1/traces", "/v1/logs", "/v1/projects", "/v1/span_annotations", "/labels", "/sign-in", "/api/v1/annotations"]
    {
        assert!(routes.iter().any(|route| route.path == known), "{known}: {routes:?}");
    }
    assert!(routes.len() >= 20, "{routes:?}");
    let own = format!("http://{}", server.http);
    let other_port = "http://127.0.0.1:1";
    for WriteRoute { method, path } in &routes {
        let path = concrete(path);
        let request = |kind: &str| server.request(method, &path).header("content-type", kind).body(b"{}");
        // With the content type that it wants.
        let wanted = if is_form(&path) { "application/x-www-form-urlencoded" } else { "application/json" };
        for headers in [
            &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site"), ("origin", other_port)],
            &[("origin", "https://evil.example")],
            &[("origin", "null")],
            &[("origin", other_port)],
            &[("referer", "https://evil.example/page")],
            &[("host", "evil.example")],
        ] {
            let request = headers.iter().fold(request(wanted), |request, (name, value)| request.header(name, value));
            assert_eq!(request.send().status, 403, "{method} {path} {headers:?}");
        }
        // With one that a page can send without asking, whatever else is in the request. Browsers ask before every other
        // method. The server never reads the body of a DELETE (`may_have_body` in listen.rs), so its content type is not
        // checked either.
        if !is_form(&path) && *method == "POST" {
            for kind in [
                "text/plain",
                "text/plain;charset=UTF-8",
                "multipart/form-data; boundary=x",
                "application/x-www-form-urlencoded",
            ] {
                let sent = [request(kind), request(kind).header("origin", &own), request(kind).chunked()];
                assert_eq!(sent.map(|request| request.send().status), [415; 3], "{method} {path} {kind}");
            }
            let untyped = server.request(method, &path).body(b"{}");
            assert_eq!(untyped.send().status, 415, "{method} {path}");
        }
    }
    // Nothing came of all that.
    assert_eq!(server.json("/v1/projects"), projects);
    assert_eq!(server.get("/labels?format=jsonl").text(), "");
}

#[test]
fn own_pages_trusted_origins_and_other_clients_may_write() {
    let lab = Lab::with("cors_origins = [\"https://page.example\"]\npublic_url = \"https://gradus.example\"", "");
    let server = lab.serve();
    let own = format!("http://{}", server.http);
    let own = own.as_str();
    let headers: [&[(&str, &str)]; 6] = [
        &[],
        &[("sec-fetch-site", "same-origin"), ("origin", own)],
        &[("sec-fetch-site", "none")],
        &[("origin", own)],
        &[("origin", "https://gradus.example")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://page.example")],
    ];
    for (number, headers) in headers.into_iter().enumerate() {
        let send = |request: Request| {
            headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
        };
        let body = Visit::new(number as u128 + 1).export("p");
        let spans = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf").body(&body);
        assert_eq!(send(spans).status, 200, "{headers:?}");
        let project = server.request("POST", "/v1/projects").json(&json!({"name": format!("p{number}")}));
        assert_eq!(send(project).status, 200, "{headers:?}");
        // Without a body there is nothing to disguise.
        assert_eq!(send(server.request("DELETE", &format!("/v1/projects/p{number}"))).status, 204, "{headers:?}");
    }
}

#[test]
fn every_port_checks_the_host() {
    let lab = Lab::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let server = lab.serve_with(&["--phoenix-port", &port.to_string()]);
    let phoenix = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let body = export("p", vec![span(1, 1, "s")]);
    for address in [server.http, server.grpc, phoenix] {
        for (host, wanted) in [("evil.example", 403), ("localhost", 200)] {
            let request = Request::new(address, "POST", "/v1/traces").header("host", host);
            let reply = request.header("content-type", "application/x-protobuf").body(&body).send();
            assert_eq!(reply.status, wanted, "{address} {host}");
            assert_eq!(Request::new(address, "GET", "/v1/projects").header("host", host).send().status, wanted);
        }
    }
    // A page cannot speak gRPC; what it can send to that port is refused there, too.
    let reply =
        Request::new(server.grpc, "POST", TRACE_SERVICE).header("content-type", "text/plain").body(&body).send();
    assert_eq!(reply.status, 415);
    let reply = grpc(server.grpc, TRACE_SERVICE, &[("origin", "https://evil.example")], frame(false, &body));
    assert_eq!(reply.status(), 7, "{reply:?}");
}
