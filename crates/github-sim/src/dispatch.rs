//! Dispatches a request to GitHub's API or to the control API of the simulator.

use crate::http::{SimulatedRequest, SimulatedResponse};
use crate::world::World;
use crate::{CONTROL, control};

impl World {
    /// Handles one request. It never fails: errors are responses. If the control API is closed, its paths are unknown
    /// paths of GitHub.
    pub fn handle(&mut self, request: &SimulatedRequest) -> SimulatedResponse {
        let is_control = request.path == CONTROL || request.path.starts_with("/_gradus/");
        if is_control && self.has_control() {
            return control::handle_control(self, request);
        }
        self.handle_api(request)
    }
}
