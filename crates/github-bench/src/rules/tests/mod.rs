//! Each rule on runs that break it, that keep it, and that nearly break it; all made by real requests to a world.

mod changes;
mod conduct;
mod fixtures;
mod flows;
mod limits;
mod messages;
