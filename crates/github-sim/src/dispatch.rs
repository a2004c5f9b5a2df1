//! Which part of the simulator answers a request: GitHub's API, or the control of the simulator itself.

use crate::http::{SimulatedRequest, SimulatedResponse};
use crate::world::World;
use crate::{CONTROL, control};

impl World {
    pub fn handle(&mut self, request: &SimulatedRequest) -> SimulatedResponse {
        let is_control = request.path == CONTROL || request.path.starts_with("/_gradus/");
        if is_control && self.has_control() {
            return control::handle_control(self, request);
        }
        self.handle_api(request)
    }
}
