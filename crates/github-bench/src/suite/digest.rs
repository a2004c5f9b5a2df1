//! What a task is, in short: two tasks with the same digest ask for the same in the same world and are held to the same.

use super::BenchTask;
use gradus_github_sim::World;

impl BenchTask {
    /// `world` is the one in which it begins; where its seeds lie does not matter, what is in them does.
    pub fn digest(&self, world: &World) -> String {
        let said = format!("{:?}", (&self.request, &self.token, self.minimal_calls, &self.charter, &self.oracle));
        let held = format!("{:?}", (&self.lookups, &self.checks, &self.allowed, world.pending_faults()));
        let mut hasher = blake3::Hasher::new();
        hasher.update(said.as_bytes());
        hasher.update(held.as_bytes());
        // A state has names for keys only, so that it can always be written.
        let _ = serde_json::to_writer(&mut hasher, world.state());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}
