use std::io::Write;
fn main() {
    let args: Vec<String> =
        std::env::args().skip(1).filter(|a| !a.starts_with("--") && a != "traces" && a != "jsonl").collect();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut sink = |t: gradus_core::trajectory::Trajectory| {
        serde_json::to_writer(&mut out, &t)?;
        out.write_all(b"\n")
    };
    let mut intake = gradus::source::Intake::new(Default::default(), &mut sink);
    for a in args {
        for input in gradus::source::expand(&a).unwrap() {
            if let Err(e) = gradus::source::read(&input, &mut intake) {
                eprintln!("{e}");
                std::process::exit(2)
            }
        }
    }
    intake.finish().unwrap();
}
