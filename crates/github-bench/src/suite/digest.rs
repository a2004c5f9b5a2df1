//! The digest of a task. Results of two runs are comparable only if their tasks have the same digest: same request,
//! same world, same checks.

use super::BenchTask;
use gradus_github_sim::World;

impl BenchTask {
    /// Returns 32 hexadecimal digits of BLAKE3. `world` is the initial world. The digest depends on the content of
    /// seeds, not on where the files are. Title, level and alternatives are left out, since they do not change the
    /// result of a run.
    pub fn digest(&self, world: &World) -> String {
        let said = format!("{:?}", (&self.request, &self.token, self.minimal_calls, &self.charter, &self.oracle));
        let held = format!("{:?}", (&self.lookups, &self.checks, &self.allowed, world.pending_faults()));
        let mut hasher = blake3::Hasher::new();
        hasher.update(said.as_bytes());
        hasher.update(held.as_bytes());
        // All map keys of a state are strings, so serialising it cannot fail.
        let _ = serde_json::to_writer(&mut hasher, world.state());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}
